//! Every order of everything that may happen, for clusters that are small: no promise is broken, and a rule that is broken
//! is missed.
//!
//! Larger searches, for which there is no time in each run of all tests, are made with `SBP_THOROUGH` set, as in
//! `make test-long`.

use sbp_replication::Rule;
use sbp_world::{Budget, Scenario, search};

fn small(name: &'static str, replicas: usize, acks: usize, batches: u8, budget: Budget) -> Scenario {
    Scenario {
        name,
        servers: replicas,
        replicas,
        later_replicas: replicas,
        acks,
        alternates: false,
        parts: 1,
        most_unconfirmed: 9,
        drivers: 1,
        writers: 1,
        batches,
        in_flight: false,
        slow_commits: false,
        budget,
        rules: Default::default(),
    }
}

fn budget(resends: u8, seals: u8, crashes: u8) -> Budget {
    Budget {
        resends,
        seals,
        crashes,
        ..Budget::default()
    }
}

fn two_failovers_and_a_crash() -> Scenario {
    small("two failovers and a crash", 2, 2, 1, budget(0, 2, 1))
}

fn one_acknowledges() -> Scenario {
    small("one acknowledges", 2, 1, 2, budget(1, 2, 1))
}

fn three_servers() -> Scenario {
    small("three servers", 3, 2, 2, budget(0, 1, 0))
}

fn three_servers_and_a_crash() -> Scenario {
    small("three servers and a crash", 3, 2, 1, budget(1, 1, 1))
}

#[test]
fn no_order_breaks_a_promise() {
    let mut scenarios = vec![
        two_failovers_and_a_crash(),
        one_acknowledges(),
        three_servers(),
        three_servers_and_a_crash(),
    ];
    if std::env::var_os("SBP_THOROUGH").is_some() {
        scenarios.extend([
            small("two batches and all", 2, 2, 2, budget(1, 2, 1)),
            small("two batches, three servers and a crash", 3, 2, 2, budget(0, 1, 1)),
            small("all three acknowledge", 3, 3, 2, budget(0, 1, 1)),
        ]);
    }
    for scenario in scenarios {
        let name = scenario.name;
        let found = search::search(scenario);
        println!("{name}: {} worlds", found.worlds);
        if let Some((violation, path)) = found.broken {
            panic!("{name}: {violation} after {path:#?}");
        }
        assert!(found.worlds > 50_000, "hardly anything can happen in {name}");
    }
}

/// Rules that are missed already in the smallest clusters. The tests of all rules are in `rules.rs`.
#[test]
fn a_broken_rule_is_missed() {
    let cases = [
        (Rule::AnsweredWhenSynced, two_failovers_and_a_crash()),
        (Rule::PositionsNotOffsets, two_failovers_and_a_crash()),
        (Rule::AcknowledgedWhenConfirmed, two_failovers_and_a_crash()),
        (Rule::RepeatsWaitForConfirmed, one_acknowledges()),
        (Rule::ReadersSeeConfirmed, two_failovers_and_a_crash()),
        (Rule::ConfirmedNeverFalls, two_failovers_and_a_crash()),
        (Rule::OneLife, one_acknowledges()),
        (Rule::FenceSurvives, two_failovers_and_a_crash()),
        (Rule::FenceHoldsAgainstPrimary, two_failovers_and_a_crash()),
        (Rule::Votes, one_acknowledges()),
        (Rule::End, one_acknowledges()),
        (Rule::WriteBack, two_failovers_and_a_crash()),
        (Rule::WriteBackSynced, two_failovers_and_a_crash()),
        (Rule::SuccessorIsComplete, one_acknowledges()),
        (Rule::OldRangesFoldNothing, one_acknowledges()),
    ];
    let mut unmissed = Vec::new();
    for (rule, scenario) in cases {
        let name = scenario.name;
        let found = search::search(scenario.without(rule));
        match found.broken {
            Some((violation, path)) => println!("without {rule:?}: {violation} after {} steps", path.len()),
            None => unmissed.push(format!("{name}: nobody misses {rule:?} in {} worlds", found.worlds)),
        }
    }
    assert!(unmissed.is_empty(), "{unmissed:#?}");
}
