//! Idempotent writers through a proxy that breaks things, to a server that is killed between sync and acknowledgement:
//! each record is there once, in order.
//!
//! The same trial on a server that forgets its writers has to fail, or it would prove nothing.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod ledger;
mod trial;

use std::time::Duration;

use sbp_server::ForgetWriters;
use trial::{Outcome, Trial};

/// Every kind of fault, each so often that `frames` frames meet about `faults` of them.
fn faults(faults: f64, frames: f64) -> Vec<String> {
    const KINDS: [(&str, f64); 11] = [
        ("drop request APPEND", 1.0),
        ("drop answer APPEND", 1.0),
        // A call id that is in flight already: the server ends the connection.
        ("duplicate request APPEND", 1.0),
        ("duplicate answer APPEND", 4.0),
        ("reorder=3 answer APPEND", 4.0),
        ("delay=20ms APPEND", 4.0),
        ("cut request APPEND", 1.0),
        ("cut=25 request APPEND", 1.0),
        ("cut-after request APPEND", 1.0),
        ("cut answer APPEND", 1.0),
        ("cut=9 answer APPEND", 1.0),
    ];
    let weights: f64 = KINDS.iter().map(|(_, weight)| weight).sum();
    let rule = |(kind, weight): &(&str, f64)| {
        // Most kinds are about one direction, which half of the frames have.
        let probability = 2.0 * faults * weight / (weights * frames);
        format!("{kind} probability={probability}")
    };
    KINDS.iter().map(rule).collect()
}

/// Figures of the run, for whoever runs it with `--nocapture`.
#[allow(clippy::print_stdout, reason = "a test's report")]
fn show(name: &str, outcome: &Outcome) {
    println!("{name}: {outcome}");
}

/// A tenth of the faults that `make test-long` makes, with `SBP_THOROUGH` set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_there_once_and_in_order_through_faults_and_kills() {
    let tenths: u32 = if std::env::var_os("SBP_THOROUGH").is_some() {
        10
    } else {
        1
    };
    let kills = 2 * u64::from(tenths);
    let outcome = Trial {
        batches: 10_000 * u64::from(tenths),
        kills,
        trims: true,
        seals: true,
        rules: faults(90.0 * f64::from(tenths), 20_000.0 * f64::from(tenths)),
        apart: false,
        forget: ForgetWriters::Never,
        limit: Duration::from_secs(600),
    }
    .run()
    .await;
    show("trial", &outcome);
    assert_eq!(outcome.wrong, [""; 0]);
    assert!(
        outcome.faults >= 50 * u64::from(tenths) && outcome.kills == kills && outcome.seals == kills,
        "{outcome}"
    );
    // At each kill something was synced that its writer did not know of, and it was recognised when it came again.
    assert!(
        outcome.unacknowledged >= kills && outcome.duplicates >= kills,
        "{outcome}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_there_once_and_in_order_where_the_roles_are_apart() {
    let outcome = Trial {
        batches: 15_000,
        kills: 4,
        trims: true,
        seals: true,
        rules: faults(150.0, 30_000.0),
        apart: true,
        forget: ForgetWriters::Never,
        limit: Duration::from_secs(300),
    }
    .run()
    .await;
    show("trial with two roles", &outcome);
    assert_eq!(outcome.wrong, [""; 0]);
    assert!(
        outcome.faults >= 75 && outcome.kills == 4 && outcome.driver_kills == 1 && outcome.seals == 4,
        "{outcome}"
    );
    assert!(outcome.unacknowledged >= 4 && outcome.duplicates >= 4, "{outcome}");
}

/// The trial without any fault but one kill, on a server that forgets its writers as told.
async fn forgetful(name: &str, forget: ForgetWriters, trims: bool) -> Outcome {
    let outcome = Trial {
        batches: 2_000,
        kills: 1,
        trims,
        seals: false,
        rules: Vec::new(),
        apart: false,
        forget,
        limit: Duration::from_secs(60),
    }
    .run()
    .await;
    show(name, &outcome);
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trial_fails_when_writers_are_kept_in_memory_only() {
    let outcome = forgetful("writers in memory only", ForgetWriters::AtStart, false).await;
    assert!(outcome.wrong.iter().any(|wrong| wrong.contains("twice")), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trial_fails_when_a_trim_drops_writers() {
    let outcome = forgetful("writers dropped by trim", ForgetWriters::OnRelease, true).await;
    assert!(outcome.wrong.iter().any(|wrong| wrong.contains("twice")), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_same_trial_succeeds_when_they_are_remembered() {
    let outcome = forgetful("writers remembered", ForgetWriters::Never, true).await;
    assert_eq!(outcome.wrong, [""; 0]);
    assert!(outcome.duplicates > 0, "{outcome}");
}

mod child {
    #[test]
    #[ignore = "the server process that the trials start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}
