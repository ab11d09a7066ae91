//! The rules of a cluster: while all are kept, no run breaks a promise; without any one of them, some run does.

use std::sync::Arc;

use sbp_replication::Rule;
use sbp_world::{Budget, Scenario, Violation, chance};

/// What may go wrong in a run.
const FAULTS: Budget = Budget {
    resends: 9,
    fences: 1,
    seals: 4,
    crashes: 3,
    drops: 1,
    wipes: 1,
    leads: 2,
    breaks: 3,
    lost_answers: 1,
    questions: 2,
    copies: 3,
    restores: 0,
    replacements: 0,
};

/// So many things happen in a run before all faults end.
const STEPS: usize = 200;

/// Three servers, all of which hold each range, and two of which acknowledge.
fn three() -> Scenario {
    Scenario {
        name: "three",
        servers: 3,
        replicas: 3,
        later_replicas: 3,
        acks: 2,
        drivers: 2,
        writers: 1,
        batches: 5,
        in_flight: true,
        budget: FAULTS,
        rules: Default::default(),
    }
}

/// Two servers of three, both of which acknowledge.
fn two() -> Scenario {
    Scenario {
        name: "two of three",
        replicas: 2,
        later_replicas: 2,
        ..three()
    }
}

/// A stream that asks for fewer replicas after its first range was opened.
fn fewer_later() -> Scenario {
    Scenario {
        name: "fewer later",
        later_replicas: 2,
        ..three()
    }
}

/// Ranges that wander: each is on two servers of four.
fn wandering() -> Scenario {
    Scenario {
        name: "wandering",
        servers: 4,
        writers: 2,
        ..two()
    }
}

/// A store that is put back to what it was at the beginning.
fn put_back() -> Scenario {
    Scenario {
        name: "a store put back",
        budget: Budget { restores: 1, ..FAULTS },
        ..three()
    }
}

/// Servers that lose their disks while nothing is stored.
fn numbers() -> Scenario {
    Scenario {
        name: "numbers",
        batches: 0,
        budget: Budget {
            wipes: 2,
            leads: 2,
            ..Budget::default()
        },
        ..three()
    }
}

/// Seals and little else.
fn seals() -> Scenario {
    Scenario {
        name: "seals",
        batches: 3,
        budget: Budget {
            seals: 5,
            lost_answers: 2,
            crashes: 2,
            copies: 3,
            resends: 3,
            ..Budget::default()
        },
        ..three()
    }
}

fn all() -> Vec<Scenario> {
    let one_acknowledges = Scenario {
        name: "one acknowledges",
        acks: 1,
        budget: Budget { wipes: 0, ..FAULTS },
        ..three()
    };
    let three_of_four = Scenario {
        name: "three of four",
        servers: 4,
        ..three()
    };
    let all_acknowledge = Scenario {
        name: "all acknowledge",
        acks: 3,
        ..three()
    };
    vec![
        three(),
        two(),
        fewer_later(),
        wandering(),
        put_back(),
        numbers(),
        seals(),
        one_acknowledges,
        three_of_four,
        all_acknowledge,
    ]
}

/// Runs of each scenario. `SBP_WORLDS` asks for more, `SBP_WORLD="name:seed"` repeats one.
#[test]
fn no_run_breaks_a_promise() {
    if let Ok(one) = std::env::var("SBP_WORLD") {
        let (name, seed) = one.rsplit_once(':').expect("name:seed");
        let scenario = all()
            .into_iter()
            .find(|scenario| scenario.name == name)
            .expect("a scenario of this name");
        let outcome = chance::run(&Arc::new(scenario), seed.parse().expect("a number"), STEPS);
        return outcome.unwrap_or_else(|failure| panic!("{failure}"));
    }
    let runs = std::env::var("SBP_WORLDS").map_or(3_000, |runs| runs.parse().expect("a number"));
    for scenario in all() {
        let scenario = Arc::new(scenario);
        for seed in 0..runs {
            if let Err(failure) = chance::run(&scenario, seed, STEPS) {
                panic!(
                    "{failure}repeat it: SBP_WORLD={:?} cargo test -p sbp-world no_run",
                    format!("{}:{seed}", scenario.name)
                );
            }
        }
    }
}

/// Breaks a rule until a run breaks a promise. With all rules in force the same seed breaks none.
fn without(rule: Rule, scenario: Scenario) -> (u64, Violation) {
    let kept = Arc::new(scenario.clone());
    let broken = Arc::new(scenario.without(rule));
    let failure = (0..40_000).find_map(|seed| chance::run(&broken, seed, STEPS).err());
    let failure = failure.unwrap_or_else(|| panic!("nobody misses the rule {rule:?}"));
    assert!(chance::run(&kept, failure.seed, STEPS).is_ok());
    (failure.seed, failure.violation)
}

macro_rules! needed {
    ($($name:ident: $rule:ident, $scenario:expr => $violation:pat,)*) => {
        /// Every rule has its test.
        #[test]
        fn all_rules_are_tested() {
            let mut tested = vec![$(Rule::$rule),*];
            tested.sort_unstable();
            assert_eq!(tested, Rule::ALL);
        }
        $(
            #[test]
            fn $name() {
                let (seed, violation) = without(Rule::$rule, $scenario);
                println!("without {:?}, seed {seed}: {violation}", Rule::$rule);
                assert!(matches!(violation, $violation), "{violation}");
            }
        )*
    };
}

use Violation::*;

needed! {
    deposed_driver_writes_nothing: DeposedDriverWritesNothing, numbers() => TwoServers(_),
    lost_disk_is_a_new_server: LostDiskIsANewServer, three() => _,
    quorums_of_the_set: QuorumsOfTheSet, fewer_later() => _,
    set_never_changes: SetNeverChanges, Scenario { budget: Budget { replacements: 1, ..FAULTS }, ..two() } => _,
    only_what_continues: OnlyWhatContinues, three() => _,
    answered_when_synced: AnsweredWhenSynced, three() => _,
    positions_not_offsets: PositionsNotOffsets, three() => _,
    acknowledged_when_confirmed: AcknowledgedWhenConfirmed, three() => _,
    repeats_wait_for_confirmed: RepeatsWaitForConfirmed, three() => _,
    readers_see_confirmed: ReadersSeeConfirmed, three() => _,
    confirmed_never_falls: ConfirmedNeverFalls, three() => _,
    one_life: OneLife, three() => _,
    offsets_once: OffsetsOnce, three() => _,
    writers_travel: WritersTravel, wandering() => _,
    folded_when_confirmed: FoldedWhenConfirmed, three() => _,
    old_ranges_fold_nothing: OldRangesFoldNothing, seals() => _,
    fence_before_vote: FenceBeforeVote, fewer_later() => _,
    fence_survives: FenceSurvives, three() => _,
    fence_holds_against_clients: FenceHoldsAgainstClients, three() => _,
    fence_holds_against_primary: FenceHoldsAgainstPrimary, three() => _,
    votes: Votes, three() => _,
    end: End, three() => _,
    write_back: WriteBack, three() => _,
    write_back_synced: WriteBackSynced, three() => _,
    written_back_confirms_nothing: WrittenBackConfirmsNothing, three() => _,
    first_end_wins: FirstEndWins, seals() => _,
    successor_is_complete: SuccessorIsComplete, three() => _,
    successor_knows_writers: SuccessorKnowsWriters, wandering() => _,
    end_told_by_the_living_primary: EndToldByTheLivingPrimary, three() => _,
    copies_count_when_synced: CopiesCountWhenSynced, three() => _,
    older_terms_refused: OlderTermsRefused, put_back() => _,
}
