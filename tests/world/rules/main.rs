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
    damages: 0,
    forces: 0,
    trims: 0,
    moves: 1,
    cuts: 2,
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
        alternates: false,
        parts: 1,
        most_unconfirmed: 3,
        drivers: 2,
        writers: 1,
        batches: 5,
        in_flight: true,
        slow_commits: false,
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

/// Crashes during seals, and little else.
fn crashes() -> Scenario {
    Scenario {
        name: "crashes",
        batches: 4,
        drivers: 1,
        slow_commits: true,
        budget: Budget {
            seals: 3,
            crashes: 3,
            resends: 3,
            ..Budget::default()
        },
        ..three()
    }
}

/// The state of the writers comes in two parts.
fn parts() -> Scenario {
    Scenario {
        name: "parts",
        parts: 2,
        ..wandering()
    }
}

/// Disks that lose an entry, or the end of a range, instead of everything.
fn damage() -> Scenario {
    Scenario {
        name: "damage",
        budget: Budget {
            wipes: 0,
            damages: 1,
            ..FAULTS
        },
        ..three()
    }
}

/// Disks that lose the end of a range, and little else.
fn lost_ends() -> Scenario {
    Scenario {
        name: "lost ends",
        batches: 3,
        drivers: 1,
        budget: Budget {
            seals: 2,
            crashes: 3,
            damages: 1,
            resends: 2,
            ..Budget::default()
        },
        ..three()
    }
}

/// Disks that lose the same entries, and an administrator who has ranges end all the same.
fn ruined() -> Scenario {
    Scenario {
        name: "ruined",
        batches: 3,
        drivers: 1,
        budget: Budget {
            seals: 3,
            crashes: 2,
            damages: 4,
            forces: 2,
            resends: 2,
            ..Budget::default()
        },
        ..three()
    }
}

/// One range is sealed again and again, and a disk loses something in between.
fn resealed() -> Scenario {
    Scenario {
        name: "resealed",
        budget: Budget {
            seals: 6,
            crashes: 1,
            damages: 1,
            ..Budget::default()
        },
        ..lost_ends()
    }
}

/// Trims, and copies of what is left.
fn trims() -> Scenario {
    Scenario {
        name: "trims",
        budget: Budget {
            trims: 2,
            moves: 2,
            ..FAULTS
        },
        ..wandering()
    }
}

/// Every second range is on one server alone, and copied to others once it is sealed.
fn alternating() -> Scenario {
    Scenario {
        name: "alternating",
        alternates: true,
        budget: Budget {
            seals: 5,
            moves: 3,
            wipes: 0,
            ..FAULTS
        },
        ..wandering()
    }
}

/// Servers that do not reach each other.
fn cuts() -> Scenario {
    Scenario {
        name: "cuts",
        budget: Budget {
            cuts: 5,
            crashes: 1,
            wipes: 0,
            ..FAULTS
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
        crashes(),
        one_acknowledges,
        three_of_four,
        all_acknowledge,
        parts(),
        damage(),
        lost_ends(),
        resealed(),
        ruined(),
        trims(),
        alternating(),
        cuts(),
    ]
}

/// Runs of each scenario. `SBP_WORLDS` asks for more, `SBP_WORLD="name:seed"` repeats one, `SBP_WORLD=name` runs one scenario.
#[test]
fn no_run_breaks_a_promise() {
    let one = std::env::var("SBP_WORLD").ok();
    let of_name = |name: &str| {
        let mut scenarios = all().into_iter().filter(|scenario| scenario.name == name);
        scenarios.next().expect("a scenario of this name")
    };
    if let Some((name, seed)) = one.as_ref().and_then(|one| one.rsplit_once(':')) {
        let outcome = chance::run(&Arc::new(of_name(name)), seed.parse().expect("a number"), STEPS);
        return outcome.unwrap_or_else(|failure| panic!("{failure}"));
    }
    let runs = std::env::var("SBP_WORLDS").map_or(1_400, |runs| runs.parse().expect("a number"));
    let scenarios = one.map_or_else(all, |name| vec![of_name(&name)]);
    let scenarios: Vec<_> = scenarios.into_iter().map(Arc::new).collect();
    let first = |scenario: &Arc<Scenario>| {
        let outcome = (0..runs).find_map(|seed| chance::run(scenario, seed, STEPS).err());
        outcome.map(|failure| {
            let name = format!("{}:{}", failure.scenario, failure.seed);
            format!("{failure}repeat it: SBP_WORLD={name:?} cargo test -p sbp-world no_run\n")
        })
    };
    // Each scenario on a thread of its own.
    let failures: String = std::thread::scope(|scope| {
        let runs: Vec<_> = scenarios.iter().map(|one| scope.spawn(|| first(one))).collect();
        runs.into_iter()
            .filter_map(|run| run.join().expect("it says what is broken"))
            .collect()
    });
    assert!(failures.is_empty(), "{failures}");
}

/// Breaks a rule until a run breaks the promise that rests on it. With all rules in force the same seed breaks none.
fn without(rule: Rule, scenario: Scenario, is_expected: impl Fn(Violation) -> bool) -> (u64, Violation) {
    let kept = Arc::new(scenario.clone());
    let broken = Arc::new(scenario.without(rule));
    let mut others = Vec::new();
    let failure = (0..40_000).find_map(|seed| {
        let failure = chance::run(&broken, seed, STEPS).err()?;
        if is_expected(failure.violation) {
            return Some(failure);
        }
        others.push(failure.violation);
        None
    });
    let failure = failure.unwrap_or_else(|| panic!("nobody misses the rule {rule:?} but for {others:?}"));
    chance::run(&kept, failure.seed, STEPS).unwrap_or_else(|failure| panic!("with all rules in force: {failure}"));
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
                let is_expected = |violation| matches!(violation, $violation);
                let (seed, violation) = without(Rule::$rule, $scenario, is_expected);
                println!("without {:?}, seed {seed}: {violation}", Rule::$rule);
            }
        )*
    };
}

use Violation::*;

needed! {
    deposed_driver_writes_nothing: DeposedDriverWritesNothing, numbers() => TwoServers(_),
    lost_disk_is_a_new_server: LostDiskIsANewServer, three() => TwoContents(_),
    quorums_of_the_set: QuorumsOfTheSet, fewer_later() => Lost(_),
    set_never_changes: SetNeverChanges, Scenario { budget: Budget { replacements: 1, ..FAULTS }, ..two() } => TooFewCopies(_),
    only_what_continues: OnlyWhatContinues, three() => Gap(_),
    answered_when_synced: AnsweredWhenSynced, three() => Lost(_),
    positions_not_offsets: PositionsNotOffsets, three() => Doubled(_),
    acknowledged_when_confirmed: AcknowledgedWhenConfirmed, three() => Lost(_),
    repeats_wait_for_confirmed: RepeatsWaitForConfirmed, three() => Lost(_),
    readers_see_confirmed: ReadersSeeConfirmed, three() => WentBack(_),
    confirmed_never_falls: ConfirmedNeverFalls, three() => WentBack(_),
    one_life: OneLife, three() => TwoContents(_) | WentBack(_) | Lost(_),
    offsets_once: OffsetsOnce, three() => TwoContents(_),
    writers_travel: WritersTravel, wandering() => Doubled(_),
    folded_when_confirmed: FoldedWhenConfirmed, three() => TwoContents(_),
    writers_count_whole: WritersCountWhole, parts() => Doubled(_),
    unconfirmed_is_bounded: UnconfirmedIsBounded, three() => TwoContents(_),
    damaged_is_incomplete: DamagedIsIncomplete, damage() => TooFewCopies(_),
    incomplete_says_so: IncompleteSaysSo, lost_ends() => Incomplete(_),
    damaged_end_is_no_vote: DamagedEndIsNoVote, damage() => Lost(_),
    known_before_opened: KnownBeforeOpened, crashes() => Lost(_),
    cut_off_serves_nobody: CutOffServesNobody, cuts() => StandsStill,
    old_ranges_fold_nothing: OldRangesFoldNothing, seals() => Doubled(_) | Lost(_) | TwoContents(_) | StandsStill,
    continuation_tells_no_writers: ContinuationTellsNoWriters, alternating() => Doubled(_),
    fence_before_vote: FenceBeforeVote, crashes() => Lost(_),
    fence_survives: FenceSurvives, crashes() => Lost(_),
    fence_holds_against_clients: FenceHoldsAgainstClients, three() => Lost(_),
    fence_holds_against_primary: FenceHoldsAgainstPrimary, three() => Lost(_),
    votes: Votes, three() => Lost(_),
    end: End, three() => Lost(_),
    forced_end_reaches: ForcedEndReaches, ruined() => Lost(_),
    write_back: WriteBack, three() => TooFewCopies(_),
    write_back_synced: WriteBackSynced, three() => TooFewCopies(_),
    asked_anew: AskedAnew, resealed() => TooFewCopies(_) | Incomplete(_),
    written_back_confirms_nothing: WrittenBackConfirmsNothing, three() => Lost(_) | WentBack(_),
    first_end_wins: FirstEndWins, seals() => EndChanged(_),
    successor_is_complete: SuccessorIsComplete, three() => Doubled(_),
    successor_knows_writers: SuccessorKnowsWriters, wandering() => Doubled(_),
    end_told_by_the_living_primary: EndToldByTheLivingPrimary, three() => OldEnd(_),
    copies_count_when_synced: CopiesCountWhenSynced, three() => Incomplete(_),
    older_terms_refused: OlderTermsRefused, put_back() => Lost(_),
}
