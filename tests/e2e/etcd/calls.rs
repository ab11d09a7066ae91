//! Each call, of one member.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_e2e::wait::{PATIENCE, bounded};
use sbp_etcd::{Committed, Compare, Failure, PageRequest, Transaction, Write};

use super::{client_of, key, put, started, value, write};

#[tokio::test]
async fn a_transaction_writes_all_where_its_comparisons_hold_and_nothing_where_one_does_not() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        let first = Transaction {
            compares: vec![Compare::Absent(key("leader"))],
            writes: vec![put("leader", "a"), put("other", "1")],
            otherwise_read: vec![key("leader"), key("nothing")],
        };
        let Committed::Done { revision } = client.commit(&first).await.unwrap() else {
            panic!("there was no such key")
        };
        let (leader, now) = client.get(key("leader")).await.unwrap();
        let leader = leader.unwrap();
        assert_eq!(
            (leader.create_revision, leader.mod_revision, now),
            (revision, revision, revision)
        );
        let Committed::Refused { found } = client.commit(&first).await.unwrap() else {
            panic!("the key is there")
        };
        assert_eq!(found, [Some(leader), None]);
        let guarded = |at, has: &str| Transaction {
            compares: vec![
                Compare::CreatedAt(key("leader"), at),
                Compare::Has(key("other"), Bytes::from(has.to_owned())),
            ],
            writes: vec![put("other", "2"), Write::Delete(key("nothing"))],
            otherwise_read: vec![],
        };
        let refused = Committed::Refused { found: vec![] };
        assert_eq!(client.commit(&guarded(revision + 1, "1")).await, Ok(refused.clone()));
        assert_eq!(client.commit(&guarded(revision, "2")).await, Ok(refused));
        assert_eq!(value(&client, "other").await.as_deref(), Some("1"));
        let done = client.commit(&guarded(revision, "1")).await.unwrap();
        assert_eq!(done, Committed::Done { revision: revision + 1 });
        assert_eq!(value(&client, "other").await.as_deref(), Some("2"));
    })
    .await;
}

#[tokio::test]
async fn keys_with_a_prefix_are_read_in_pages_as_of_one_revision_and_removed_together() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        let names: Vec<_> = (0..100).map(|number| format!("many/{number:04x}")).collect();
        write(&client, names.iter().map(|name| put(name, name)).collect())
            .await
            .unwrap();
        write(&client, vec![put("manz", "behind"), put("many", "before")])
            .await
            .unwrap();
        let mut request = PageRequest {
            prefix: key("many/"),
            after: None,
            limit: 33,
            revision: None,
        };
        let mut read = Vec::new();
        loop {
            let page = client.page(&request).await.unwrap();
            read.extend(page.keys.iter().map(|found| found.key.clone()));
            if !page.more {
                break;
            }
            request.after = page.keys.last().map(|found| found.key.clone());
            request.revision.get_or_insert(page.revision);
            // What comes later does not show.
            write(&client, vec![put(&format!("many/z{}", read.len()), "late")])
                .await
                .unwrap();
        }
        assert_eq!(read, names.iter().map(|name| key(name)).collect::<Vec<_>>());
        write(&client, vec![Write::DeletePrefix(key("many/"))]).await.unwrap();
        request.after = None;
        let old = client.page(&request).await.unwrap();
        assert_eq!(old.keys.len(), 33, "that revision still has them");
        request.revision = None;
        let page = client.page(&request).await.unwrap();
        assert_eq!((page.keys, page.more), (vec![], false));
        assert_eq!(value(&client, "manz").await.as_deref(), Some("behind"));
        assert_eq!(value(&client, "many").await.as_deref(), Some("before"));
    })
    .await;
}

#[tokio::test]
async fn pages_that_are_too_large_for_one_answer_come_in_smaller_ones() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        let large = "x".repeat(1 << 20);
        for number in 0..20 {
            write(&client, vec![put(&format!("large/{number:02}"), &large)])
                .await
                .unwrap();
        }
        let request = PageRequest {
            prefix: key("large/"),
            after: None,
            limit: 1_000,
            revision: None,
        };
        // A machine with other work can need more than the time of a call for so many bytes.
        let page = loop {
            match client.page(&request).await {
                Err(error) if matches!(error.failure, Failure::NoAnswer(_)) => {}
                answered => break answered.unwrap(),
            }
        };
        assert!(page.more && (1..20).contains(&page.keys.len()), "{}", page.keys.len());
    })
    .await;
}

#[tokio::test]
async fn a_transaction_has_128_operations_and_what_has_more_is_refused_with_nothing_written() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        let writes = |count: usize| (0..count).map(|number| put(&format!("w{number}"), "")).collect();
        assert!(write(&client, writes(128)).await.is_ok());
        let error = write(&client, writes(129)).await.unwrap_err();
        assert!(
            matches!(error.failure, Failure::Refused(_)) && !error.may_have_happened(),
            "{error}"
        );
        let twice = write(&client, vec![put("twice", "1"), put("twice", "2")])
            .await
            .unwrap_err();
        assert!(matches!(twice.failure, Failure::Refused(_)), "{twice}");
        assert_eq!(value(&client, "twice").await, None);
    })
    .await;
}

#[tokio::test]
async fn keys_go_with_their_lease_when_it_ends_or_is_revoked_and_stay_while_it_is_kept_alive() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        let leases = [
            client.grant(Duration::from_secs(2)).await,
            client.grant(Duration::from_secs(2)).await,
        ];
        let [kept, left] = leases.map(Result::unwrap);
        let under = |name: &str, lease| Write::Put(key(name), Bytes::new(), Some(lease));
        write(&client, vec![under("kept", kept), under("left", left)])
            .await
            .unwrap();
        let (found, _) = client.get(key("kept")).await.unwrap();
        assert_eq!(found.unwrap().lease, Some(kept));
        let deadline = Instant::now() + PATIENCE;
        while value(&client, "left").await.is_some() {
            assert!(Instant::now() < deadline, "nobody keeps it alive");
            assert_eq!(client.keep_alive(kept).await, Ok(true));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.keep_alive(left).await, Ok(false), "it has ended");
        assert!(value(&client, "kept").await.is_some());
        client.revoke(kept).await.unwrap();
        assert_eq!(value(&client, "kept").await, None);
        assert_eq!(client.revoke(kept).await, Ok(()), "a lease that has ended is no error");
        let error = write(&client, vec![under("late", kept)]).await.unwrap_err();
        assert!(
            matches!(error.failure, Failure::Absent(_)) && !error.may_have_happened(),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_compacted_cannot_be_read_any_more_and_the_rest_can() {
    bounded(async {
        let (_etcd, client) = started(1).await;
        for number in 0..5 {
            write(&client, vec![put("key", &number.to_string())]).await.unwrap();
        }
        let (_, revision) = client.get(key("key")).await.unwrap();
        client.compact(revision - 1).await.unwrap();
        let request = |revision| PageRequest {
            prefix: key("key"),
            after: None,
            limit: 1,
            revision: Some(revision),
        };
        let error = client.page(&request(revision - 2)).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Refused(_)), "{error}");
        assert_eq!(client.page(&request(revision - 1)).await.unwrap().keys[0].value, "3");
        assert_eq!(client.page(&request(revision)).await.unwrap().keys[0].value, "4");
    })
    .await;
}

#[tokio::test]
async fn errors_name_the_member_and_what_was_asked_and_say_whether_it_may_have_happened() {
    bounded(async {
        // Something listens there that never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let client = client_of(vec![address.clone()]);
        let error = write(&client, vec![put("a", "1")]).await.unwrap_err();
        assert!(error.may_have_happened(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&address) && text.contains("did not make a transaction"),
            "{text}"
        );
        drop(silent);
        let error = write(&client, vec![put("a", "1")]).await.unwrap_err();
        assert!(!error.may_have_happened() && error.is_of_the_member(), "{error}");
    })
    .await;
}
