mod race;

use super::*;

const MINE: Lease = Lease(1);
const THEIRS: Lease = Lease(2);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn leader(address: &str, lease: Lease, term: u64) -> Leader {
    Leader {
        address: address.to_owned(),
        lease,
        term: Term(term),
    }
}

/// A driver that has its lease since `0` and has said that it lives.
fn waiting() -> Leadership {
    let mut driver = Leadership::new("a:1", ms(0));
    assert_eq!(driver.standing(ms(0)), Standing::Unreachable, "nothing was heard yet");
    assert_eq!(driver.next(ms(0)), Some(Ask::Grant));
    assert_eq!(driver.next(ms(0)), None, "one question at a time");
    driver.granted(Some(MINE), ms(0), ms(1));
    assert_eq!(driver.next(ms(1)), Some(Ask::Announce(MINE)));
    driver.announced(true, ms(2));
    driver
}

/// The same, leading in term 7.
fn leading() -> Leadership {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    driver.looked(Ok(Some(leader("a:1", MINE, 7))), ms(3));
    assert_eq!(driver.standing(ms(3)), Standing::Leads(Term(7)));
    driver
}

#[test]
fn who_finds_no_leader_claims_and_leads_in_the_term_of_its_key() {
    let mut driver = leading();
    assert_eq!(driver.next(ms(2_000)), None, "it knows who leads");
}

#[test]
fn a_leader_answers_within_three_seconds_of_sending_a_keep_alive_that_was_answered() {
    let mut driver = leading();
    assert_eq!(driver.renew(ms(499)), None);
    assert_eq!(driver.renew(ms(500)), Some(MINE));
    assert_eq!(driver.renew(ms(1_500)), None, "one at a time");
    // The answer took more than a second: that does not count.
    driver.kept(MINE, Kept::Alive, ms(500), ms(1_700));
    assert_eq!(driver.standing(ms(3_499)), Standing::Leads(Term(7)));
    assert_ne!(driver.standing(ms(3_500)), Standing::Leads(Term(7)));
    // One that was not answered counts nothing either.
    assert_eq!(driver.renew(ms(1_700)), Some(MINE));
    driver.kept(MINE, Kept::Unknown, ms(1_700), ms(2_700));
    assert_eq!(driver.renew(ms(2_700)), Some(MINE), "the next one comes at once");
    assert_eq!(driver.standing(ms(3_500)), Standing::Vacant);
}

#[test]
fn who_could_not_answer_for_a_moment_never_leads_in_that_term_again() {
    let mut driver = leading();
    assert_eq!(driver.renew(ms(500)), Some(MINE));
    assert_eq!(driver.next(ms(3_000)), Some(Ask::Revoke(MINE)), "its time is over");
    assert_eq!(driver.term(), None);
    // The answer comes late: etcd still had the lease.
    driver.kept(MINE, Kept::Alive, ms(500), ms(3_001));
    assert_eq!(driver.term(), None);
    driver.revoked(true, ms(3_002));
    assert_eq!(driver.next(ms(3_002)), Some(Ask::Grant));
    driver.granted(Some(Lease(9)), ms(3_002), ms(3_003));
    assert_eq!(
        driver.next(ms(3_003)),
        Some(Ask::Announce(Lease(9))),
        "under the new lease"
    );
}

#[test]
fn a_claim_without_an_answer_is_sent_again_unchanged_and_finds_itself() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    driver.looked(Err(()), ms(1_002));
    assert_eq!(driver.next(ms(1_002)), None);
    assert_eq!(driver.next(ms(1_252)), Some(Ask::Claim(MINE)));
    driver.looked(Ok(Some(leader("a:1", MINE, 5))), ms(1_260));
    assert_eq!(driver.standing(ms(1_260)), Standing::Leads(Term(5)));
}

#[test]
fn who_follows_looks_again_and_again_and_claims_once_nobody_leads() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    let other = leader("b:1", THEIRS, 4);
    driver.looked(Ok(Some(other.clone())), ms(3));
    assert_eq!(driver.standing(ms(3)), Standing::Follows(other.clone()));
    assert_eq!(driver.next(ms(252)), None);
    assert_eq!(driver.next(ms(253)), Some(Ask::Dial(other.clone())));
    driver.dialled(false, ms(254));
    assert_eq!(driver.next(ms(254)), Some(Ask::Look), "at once");
    driver.looked(Ok(Some(other.clone())), ms(255));
    assert_eq!(driver.next(ms(504)), None);
    assert_eq!(driver.next(ms(505)), Some(Ask::Dial(other)));
    driver.dialled(false, ms(755));
    assert_eq!(driver.next(ms(755)), Some(Ask::Look));
    driver.looked(Ok(None), ms(756));
    assert_eq!(driver.standing(ms(756)), Standing::Vacant);
    assert_eq!(driver.next(ms(756)), Some(Ask::Claim(MINE)), "at once");
    driver.looked(Ok(Some(leader("a:1", MINE, 6))), ms(757));
    assert_eq!(driver.standing(ms(757)), Standing::Leads(Term(6)));
}

#[test]
fn the_lease_of_a_leader_where_nothing_listens_is_revoked() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    let other = leader("b:1", THEIRS, 4);
    driver.looked(Ok(Some(other.clone())), ms(3));
    assert_eq!(driver.next(ms(253)), Some(Ask::Dial(other)));
    driver.dialled(true, ms(254));
    assert_eq!(driver.next(ms(254)), Some(Ask::Revoke(THEIRS)));
    // Without an answer it is asked again.
    driver.revoked(false, ms(1_254));
    assert_eq!(driver.next(ms(1_504)), Some(Ask::Revoke(THEIRS)));
    driver.revoked(true, ms(1_505));
    assert_eq!(driver.next(ms(1_505)), Some(Ask::Claim(MINE)));
}

#[test]
fn a_driver_that_was_restarted_ends_the_lease_that_it_had_before() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    driver.looked(Ok(Some(leader("a:1", THEIRS, 4))), ms(3));
    assert_ne!(driver.standing(ms(3)), Standing::Leads(Term(4)), "that is another life");
    assert_eq!(driver.next(ms(3)), Some(Ask::Revoke(THEIRS)));
}

#[test]
fn a_lease_that_has_ended_ends_the_term_and_another_one_is_asked_for() {
    for leads in [false, true] {
        let mut driver = if leads { leading() } else { waiting() };
        assert_eq!(driver.renew(ms(500)), Some(MINE));
        driver.kept(MINE, Kept::Ended, ms(500), ms(501));
        assert_eq!(driver.standing(ms(501)), Standing::Vacant);
        assert_eq!(driver.next(ms(501)), Some(Ask::Grant));
    }
}

#[test]
fn a_write_that_finds_another_leader_ends_the_term_and_one_of_an_older_term_does_not() {
    let mut driver = leading();
    driver.step_down(Term(6), ms(10));
    assert_eq!(driver.standing(ms(10)), Standing::Leads(Term(7)));
    driver.step_down(Term(7), ms(10));
    assert_eq!(driver.standing(ms(10)), Standing::Vacant);
    assert_eq!(driver.next(ms(10)), Some(Ask::Revoke(MINE)));
}

#[test]
fn a_store_that_answers_nothing_for_three_seconds_is_unreachable() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    let other = leader("b:1", THEIRS, 4);
    driver.looked(Ok(Some(other.clone())), ms(3));
    assert_eq!(driver.standing(ms(3_002)), Standing::Follows(other.clone()));
    assert_eq!(driver.standing(ms(3_003)), Standing::Unreachable);
    assert_eq!(driver.renew(ms(3_100)), Some(MINE));
    driver.kept(MINE, Kept::Alive, ms(3_100), ms(3_101));
    assert_eq!(driver.standing(ms(3_101)), Standing::Follows(other), "it answers again");
}

#[test]
fn who_waits_knows_for_how_long() {
    let mut driver = leading();
    assert_eq!(driver.wake_at(), Some(ms(500)), "the next keep-alive");
    assert_eq!(driver.renew(ms(500)), Some(MINE));
    assert_eq!(driver.wake_at(), Some(ms(3_000)), "the end of its time");
    let mut driver = Leadership::new("a:1", ms(5));
    assert_eq!(driver.wake_at(), Some(ms(5)));
    assert_eq!(driver.next(ms(5)), Some(Ask::Grant));
    assert_eq!(driver.wake_at(), None, "an answer");
    driver.granted(None, ms(5), ms(1_005));
    assert_eq!(driver.wake_at(), Some(ms(1_005) + LOOK));
}

#[test]
fn who_could_not_lead_waits_before_it_claims_and_longer_each_time_until_it_has_led() {
    let mut driver = leading();
    let mut now = ms(10);
    let mut term = Term(7);
    let mut waits = Vec::new();
    for has_led in [false, false, true, false, false, false, false, false, false] {
        if has_led {
            driver.began(term);
        }
        driver.cannot_lead(term, now);
        assert_eq!(driver.standing(now), Standing::Vacant);
        let left = now;
        loop {
            match driver.next(now) {
                Some(Ask::Revoke(_)) => driver.revoked(true, now),
                Some(Ask::Grant) => driver.granted(Some(MINE), now, now),
                Some(Ask::Announce(_)) => driver.announced(true, now),
                Some(Ask::Look) => driver.looked(Ok(None), now),
                Some(Ask::Claim(_)) => break,
                Some(ask) => panic!("{ask:?}"),
                None => now = driver.wake_at().unwrap(),
            }
            if let Some(lease) = driver.renew(now) {
                driver.kept(lease, Kept::Alive, now, now);
            }
        }
        waits.push((now - left).as_millis());
        term = Term(term.0 + 1);
        driver.looked(Ok(Some(leader("a:1", MINE, term.0))), now);
    }
    assert_eq!(waits, [500, 1_000, 500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
}

#[test]
fn the_lease_of_a_leader_that_begins_term_after_term_is_ended_in_the_third() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    driver.looked(Ok(Some(leader("b:1", Lease(20), 4))), ms(3));
    for (at, found, is_ended) in [
        (1_003, leader("b:1", Lease(21), 5), false),
        // The same term again, and that of another driver, which may be able to lead.
        (1_503, leader("b:1", Lease(21), 5), false),
        (2_003, leader("c:1", Lease(30), 6), false),
        (3_003, leader("b:1", Lease(22), 7), true),
    ] {
        let Some(Ask::Dial(_)) = driver.next(ms(at)) else {
            panic!("it dials first")
        };
        driver.dialled(false, ms(at));
        assert_eq!(driver.next(ms(at)), Some(Ask::Look));
        driver.looked(Ok(Some(found.clone())), ms(at));
        match is_ended {
            true => assert_eq!(driver.next(ms(at)), Some(Ask::Revoke(found.lease))),
            false => assert_eq!(driver.next(ms(at)), None),
        }
    }
    driver.revoked(true, ms(3_005));
    assert_eq!(driver.next(ms(3_005)), Some(Ask::Claim(MINE)), "at once");
}

#[test]
fn terms_long_ago_do_not_count() {
    let mut driver = waiting();
    assert_eq!(driver.next(ms(2)), Some(Ask::Claim(MINE)));
    for number in 0..20 {
        let at = ms(3 + 5_001 * number);
        driver.looked(Ok(Some(leader("b:1", Lease(20), 4 + number))), at);
        assert!(matches!(driver.next(at + LOOK), Some(Ask::Dial(_))), "{number}");
        driver.dialled(false, at + LOOK);
        assert_eq!(driver.next(at + LOOK), Some(Ask::Look));
    }
}
