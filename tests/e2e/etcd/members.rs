//! Members that are killed, stopped and started again.

use std::time::{Duration, Instant};

use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_etcd::{Client, Committed};

use super::{client_of, patient_client_of, raise, settled, started, value};

/// Raises the counter by one, as often as it takes, and returns how long that was. A transaction without an answer is sent
/// again unchanged: the counter says whether it happened.
async fn raised(client: &Client, from: Option<u64>) -> Duration {
    raised_behind(client, from, false).await
}

/// The same, where the transaction was sent before; `unknown`: and may have happened, or may yet.
async fn raised_behind(client: &Client, from: Option<u64>, mut unknown: bool) -> Duration {
    let began = Instant::now();
    let transaction = raise(from);
    let target = from.map_or(1, |from| from + 1);
    loop {
        match client.commit(&transaction).await {
            Ok(Committed::Done { .. }) => return began.elapsed(),
            Ok(Committed::Refused { found }) => {
                let now = found[0].as_ref().map(|found| found.value.clone());
                assert_eq!(now, Some(target.to_string().into()), "nobody else raises it");
                assert!(unknown, "it was refused, and yet had happened");
                return began.elapsed();
            }
            Err(error) => {
                assert!(error.is_of_the_member(), "{error}");
                unknown |= error.may_have_happened();
                assert!(began.elapsed() < LIMIT, "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn raise_to(client: &Client, target: u64) {
    let now: u64 = value(client, "counter").await.map_or(0, |value| value.parse().unwrap());
    for from in now..target {
        raised(client, Some(from).filter(|from| *from > 0)).await;
    }
}

#[tokio::test]
async fn a_transaction_happens_once_whichever_member_is_killed_meanwhile() {
    bounded_by(LIMIT, async {
        let (mut etcd, client) = started(3).await;
        raise_to(&client, 20).await;
        // One of them is the leader.
        for (round, member) in (0..3).enumerate() {
            etcd.kill(member);
            raise_to(&client, 20 + 10 * (u64::try_from(round).unwrap() + 1)).await;
            etcd.start_member(member);
            // Two of three are needed for the next round.
            settled(&client_of(vec![etcd.addresses()[member].clone()])).await;
        }
        assert_eq!(value(&client, "counter").await.as_deref(), Some("50"));
    })
    .await;
}

#[tokio::test]
async fn a_transaction_happens_once_whichever_member_stops_answering_meanwhile() {
    bounded_by(LIMIT, async {
        let (etcd, client) = started(3).await;
        raise_to(&client, 20).await;
        for round in 0..3_u64 {
            let member = usize::try_from(round).unwrap();
            etcd.pause(member);
            // What it was asked before, or what is asked next, may come to it: then that is sent again.
            raise_to(&client, 20 + 10 * (round + 1)).await;
            etcd.go_on(member);
            settled(&client_of(vec![etcd.addresses()[member].clone()])).await;
        }
        assert_eq!(value(&client, "counter").await.as_deref(), Some("50"));
    })
    .await;
}

/// Longer than a member that runs takes on a machine with much to do.
const LONG: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_member_that_does_not_answer_costs_the_time_of_one_call_and_is_not_asked_again() {
    bounded_by(LIMIT, async {
        let (etcd, _) = started(3).await;
        let addresses = etcd.addresses();
        let mut slowest = Duration::ZERO;
        for member in 0..3 {
            let mut order = addresses.clone();
            order.rotate_left(member);
            let client = patient_client_of(order, LONG);
            settled(&client).await;
            etcd.pause(member);
            settled(&client).await;
            for _ in 0..10 {
                let began = Instant::now();
                client.get(super::key("counter")).await.unwrap();
                slowest = slowest.max(began.elapsed());
            }
            etcd.go_on(member);
            settled(&client_of(vec![addresses[member].clone()])).await;
        }
        // A call for which it was asked has waited that long.
        assert!(slowest < LONG, "a call took {slowest:?}");
    })
    .await;
}

#[tokio::test]
async fn without_a_majority_nothing_is_answered_and_afterwards_everything_is() {
    bounded_by(LIMIT, async {
        let (mut etcd, client) = started(3).await;
        raise_to(&client, 3).await;
        etcd.kill(0);
        etcd.kill(1);
        let error = client.commit(&raise(Some(3))).await.unwrap_err();
        assert!(error.is_of_the_member(), "{error}");
        etcd.start_member(0);
        // The member that was asked may have kept it until there is a majority again.
        raised_behind(&client, Some(3), error.may_have_happened()).await;
        assert_eq!(value(&client, "counter").await.as_deref(), Some("4"));
    })
    .await;
}
