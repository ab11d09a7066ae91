//! Streams with several copies while servers are killed, paused, cut off and lose their disks: each record that was acknowledged
//! is there once, at its offset, in order, on every server that says that it has it; and appends go on when a fault is over.
//!
//! Two kinds of clusters: a placement driver and three range servers, and three equal servers with an etcd.
//!
//! Each kind of fault once, in an order by chance; with `SBP_THOROUGH` 50 times. `SBP_CHAOS_SEED` repeats the choice,
//! `SBP_CHAOS_ROUNDS` says how many faults there are.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod faults;
mod scene;

use faults::Kind;
use scene::Scene;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[allow(clippy::print_stdout, reason = "a test's report")]
fn say(text: &str) {
    println!("{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_there_once_and_in_order_whatever_becomes_of_servers() {
    trial(Kind::OneDriver).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_where_every_server_may_lead_whatever_becomes_of_them_and_their_etcd() {
    trial(Kind::EqualServers).await;
}

async fn trial(kind: Kind) {
    let seed = number("SBP_CHAOS_SEED", 7);
    let is_long = std::env::var_os("SBP_THOROUGH").is_some();
    let faults = kind.faults();
    let rounds = number("SBP_CHAOS_ROUNDS", faults.len() as u64 * if is_long { 50 } else { 1 });
    let mut random = fastrand::Rng::with_seed(seed);
    let mut scene = Scene::set(kind).await;
    let mut order = Vec::new();
    for round in 0..rounds {
        if order.is_empty() {
            order.clone_from(&faults);
            random.shuffle(&mut order);
        }
        let fault = order.pop().unwrap();
        let stood_still = scene.suffer(fault, &mut random).await;
        say(&format!(
            "{kind:?} round {round}: {fault:?}, appends stood still for {} ms at most",
            stood_still.as_millis()
        ));
    }
    let (acknowledged, wrong) = scene.verdict().await;
    say(&format!(
        "{kind:?} seed {seed}: {acknowledged} batches, {} wrong",
        wrong.len()
    ));
    assert_eq!(wrong, [""; 0], "seed {seed}");
    assert!(acknowledged > 100 * rounds, "{acknowledged}");
}

mod child {
    #[test]
    #[ignore = "the server process that the trial starts"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}
