use std::time::Duration;

use sbp_messages::ErrorCode;

use super::{CallFacts, Decision, Half, Repeat, Target, Wait, decide, duration_of};
use crate::config::RetryPolicy;
use crate::failure::Cause;

const FINAL: Decision = Decision::Final {
    may_have_been_done: false,
};
const DOUBTFUL: Decision = Decision::Final {
    may_have_been_done: true,
};

fn asked_for(repeat: Repeat) -> CallFacts {
    CallFacts {
        repeat,
        half: Half::Placement,
        servers: 1,
        hops: 0,
        routed: false,
        leader_is_silent: false,
    }
}

fn refused(code: i16) -> Cause {
    Cause::Refused {
        code: ErrorCode(code),
        message: String::new(),
        throttle: Duration::ZERO,
        leader: None,
    }
}

fn again(at: Target) -> Decision {
    Decision::Again {
        after: Wait::BackOff,
        at,
    }
}

/// Again, within a second.
fn soon(at: Target) -> Decision {
    Decision::Again { after: Wait::Soon, at }
}

fn lost(sent: bool) -> Cause {
    Cause::ConnectionLost {
        sent,
        reason: String::new(),
    }
}

#[test]
fn codes_decide_by_their_row_in_the_table() {
    let refreshed = Decision::Again {
        after: Wait::None,
        at: Target::Refreshed,
    };
    // code, for what is harmless twice, for what is not
    let table = [
        (1, FINAL, DOUBTFUL),
        (2, FINAL, FINAL),
        (5, soon(Target::Elsewhere), soon(Target::Elsewhere)),
        (1403, FINAL, FINAL),
        (1404, FINAL, FINAL),
        (1408, again(Target::Same), again(Target::Same)),
        (1412, FINAL, FINAL),
        (1429, again(Target::Same), again(Target::Same)),
        (1460, refreshed, refreshed),
        (1462, refreshed, refreshed),
        (1463, FINAL, FINAL),
        (1484, FINAL, FINAL),
        (1502, soon(Target::Same), soon(Target::Same)),
        (2500, again(Target::Same), DOUBTFUL),
        (2503, soon(Target::Same), soon(Target::Same)),
        (2507, again(Target::Same), again(Target::Same)),
        (2508, again(Target::Elsewhere), DOUBTFUL),
        (7777, FINAL, DOUBTFUL),
    ];
    let policy = RetryPolicy::default();
    for (code, harmless, twice) in table {
        assert_eq!(
            decide(&refused(code), asked_for(Repeat::Harmless), 1, &policy),
            harmless,
            "{code}, harmless"
        );
        assert_eq!(
            decide(&refused(code), asked_for(Repeat::Twice), 1, &policy),
            twice,
            "{code}, twice"
        );
    }
}

#[test]
fn an_append_is_repeated_only_when_nothing_was_sent() {
    let policy = RetryPolicy::default();
    let at_once = Decision::Again {
        after: Wait::None,
        at: Target::Same,
    };
    assert_eq!(decide(&lost(false), asked_for(Repeat::Twice), 1, &policy), at_once);
    assert_eq!(
        decide(&Cause::NotStarted, asked_for(Repeat::Twice), 1, &policy),
        at_once
    );
    assert_eq!(decide(&lost(true), asked_for(Repeat::Twice), 1, &policy), DOUBTFUL);
    assert_eq!(decide(&lost(true), asked_for(Repeat::Harmless), 1, &policy), at_once);
    assert_eq!(
        decide(&lost(true), asked_for(Repeat::Harmless), 2, &policy),
        soon(Target::Same)
    );
    assert_eq!(
        decide(&Cause::deadline(true), asked_for(Repeat::Twice), 1, &policy),
        DOUBTFUL
    );
    assert_eq!(
        decide(&Cause::deadline(false), asked_for(Repeat::Twice), 1, &policy),
        FINAL
    );
    assert_eq!(
        decide(&Cause::deadline(true), asked_for(Repeat::Harmless), 1, &policy),
        FINAL
    );
}

#[test]
fn a_server_of_the_other_half_sends_the_call_on() {
    let policy = RetryPolicy::default();
    let unsupported = refused(1498);
    let at_once = |at| Decision::Again { after: Wait::None, at };
    let placement = |servers| CallFacts {
        servers,
        ..asked_for(Repeat::Harmless)
    };
    // Each of the servers that were named once.
    assert_eq!(
        decide(&unsupported, placement(3), 1, &policy),
        at_once(Target::Elsewhere)
    );
    assert_eq!(
        decide(&unsupported, placement(3), 2, &policy),
        at_once(Target::Elsewhere)
    );
    assert_eq!(decide(&unsupported, placement(3), 3, &policy), FINAL);
    assert_eq!(decide(&unsupported, placement(1), 1, &policy), FINAL);
    for repeat in [Repeat::Harmless, Repeat::Twice, Repeat::Deduplicated] {
        let ranges = CallFacts {
            half: Half::Ranges,
            ..asked_for(repeat)
        };
        assert_eq!(decide(&unsupported, ranges, 1, &policy), at_once(Target::Refreshed));
        assert_eq!(decide(&unsupported, ranges, 2, &policy), soon(Target::Refreshed));
    }
}

#[test]
fn a_server_that_was_named_and_cannot_be_reached_is_looked_for() {
    let policy = RetryPolicy::default();
    let unreachable = Cause::Unreachable {
        reason: String::new(),
        hopeless: false,
    };
    for (half, routed, at) in [
        (Half::Ranges, true, Target::Refreshed),
        (Half::Ranges, false, Target::Same),
        (Half::Placement, true, Target::Same),
        (Half::Placement, false, Target::Same),
    ] {
        let asked = CallFacts {
            half,
            routed,
            ..asked_for(Repeat::Harmless)
        };
        assert_eq!(decide(&unreachable, asked, 1, &policy), soon(at), "{half:?} {routed}");
    }
}

#[test]
fn another_server_is_asked_to_read_when_one_is_silent_and_nobody_to_append() {
    let policy = RetryPolicy::default();
    let asked = |half, routed, repeat| CallFacts {
        half,
        routed,
        ..asked_for(repeat)
    };
    let decided = |asked, attempt| decide(&Cause::deadline(true), asked, attempt, &policy);
    let read = asked(Half::Ranges, true, Repeat::Harmless);
    let at_once = Decision::Again {
        after: Wait::None,
        at: Target::Refreshed,
    };
    assert_eq!((decided(read, 1), decided(read, 2)), (at_once, soon(Target::Refreshed)));
    assert_eq!(decided(asked(Half::Ranges, false, Repeat::Harmless), 1), FINAL);
    assert_eq!(decided(asked(Half::Placement, true, Repeat::Harmless), 1), FINAL);
    assert_eq!(decided(asked(Half::Ranges, true, Repeat::Twice), 1), DOUBTFUL);
}

#[test]
fn hints_are_followed_three_times() {
    let policy = RetryPolicy::default();
    let mut cause = refused(5);
    let Cause::Refused { leader, .. } = &mut cause else {
        unreachable!("it is a refusal")
    };
    *leader = Some(crate::address::ServerAddress::parse("leader:1").unwrap());
    for hops in 0..5 {
        let asked = CallFacts {
            hops,
            ..asked_for(Repeat::Twice)
        };
        let followed = Decision::Again {
            after: Wait::None,
            at: Target::Leader,
        };
        let expected = if hops < 3 { followed } else { soon(Target::Elsewhere) };
        assert_eq!(decide(&cause, asked, 4, &policy), expected, "{hops}");
        let of_a_silent_one = CallFacts {
            leader_is_silent: true,
            ..asked
        };
        let elsewhere = soon(Target::Elsewhere);
        assert_eq!(decide(&cause, of_a_silent_one, 1, &policy), elsewhere, "{hops}");
    }
}

#[test]
fn what_a_writer_sends_may_be_sent_again_and_may_have_been_done() {
    let policy = RetryPolicy::default();
    let asked = CallFacts::append(Repeat::Deduplicated);
    let at_once = Decision::Again {
        after: Wait::None,
        at: Target::Same,
    };
    assert_eq!(decide(&lost(true), asked, 1, &policy), at_once);
    for (code, expected) in [
        (1, DOUBTFUL),
        (1404, FINAL),
        (1484, FINAL),
        (2500, again(Target::Same)),
        (2508, again(Target::Elsewhere)),
        (7777, DOUBTFUL),
    ] {
        assert_eq!(decide(&refused(code), asked, 1, &policy), expected, "{code}");
    }
    let nonsense = Cause::Protocol { what: String::new() };
    assert_eq!(decide(&nonsense, asked, 1, &policy), again(Target::Same));
    assert_eq!(decide(&nonsense, asked_for(Repeat::Twice), 1, &policy), DOUBTFUL);
    assert_eq!(decide(&Cause::deadline(true), asked, 1, &policy), DOUBTFUL);
}

#[test]
fn who_waits_for_a_takeover_asks_at_least_once_a_second_however_long_it_takes() {
    let policy = RetryPolicy::default();
    let longest = |wait| {
        let pauses = (0..10_000).map(|attempt| duration_of(wait, attempt % 100, &policy));
        pauses.max().expect("there are some")
    };
    assert!(longest(Wait::Soon) <= Duration::from_secs(1));
    assert!(
        longest(Wait::BackOff) > Duration::from_secs(5),
        "a server that has too much to do is left alone"
    );
    let hasty = RetryPolicy {
        backoff_max: Duration::from_millis(10),
        ..policy
    };
    assert!(duration_of(Wait::Soon, 100, &hasty) <= hasty.backoff_max);
}

#[test]
fn attempts_end() {
    let policy = RetryPolicy {
        max_attempts: 3,
        ..RetryPolicy::default()
    };
    let unreachable = Cause::Unreachable {
        reason: String::new(),
        hopeless: false,
    };
    assert_eq!(
        decide(&unreachable, asked_for(Repeat::Harmless), 2, &policy),
        soon(Target::Same)
    );
    assert_eq!(decide(&unreachable, asked_for(Repeat::Harmless), 3, &policy), FINAL);
    let hopeless = Cause::Unreachable {
        reason: String::new(),
        hopeless: true,
    };
    assert_eq!(decide(&hopeless, asked_for(Repeat::Harmless), 1, &policy), FINAL);
}

#[test]
fn a_throttle_is_waited_for_but_not_for_ever() {
    let policy = RetryPolicy::default();
    let asked = |throttle| Cause::Refused {
        code: ErrorCode(1429),
        message: String::new(),
        throttle,
        leader: None,
    };
    assert_eq!(
        decide(&asked(Duration::from_secs(2)), asked_for(Repeat::Harmless), 1, &policy),
        Decision::Again {
            after: Wait::Throttled(Duration::from_secs(2)),
            at: Target::Same
        }
    );
    assert_eq!(
        decide(
            &asked(Duration::from_secs(3_600)),
            asked_for(Repeat::Harmless),
            1,
            &policy
        ),
        Decision::Again {
            after: Wait::Throttled(Duration::from_secs(30)),
            at: Target::Same
        }
    );
}

#[test]
fn back_off_doubles_up_to_its_last_bound() {
    let policy = RetryPolicy::default();
    let bounds: Vec<_> = [1, 2, 3, 8, 9, 1_000]
        .map(|attempt| policy.back_off().bound(attempt).as_millis())
        .into();
    assert_eq!(bounds, [50, 100, 200, 6_400, 10_000, 10_000]);
}
