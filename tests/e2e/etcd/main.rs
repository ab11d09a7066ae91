//! What `sbp-etcd`, and placement drivers that share their metadata in it, make of a real etcd, whose members are killed and
//! stopped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod calls;
mod combined;
mod drivers;
mod identity;
mod members;
mod put_back;
mod questions;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_e2e::etcd::Etcd;
use sbp_e2e::wait::PATIENCE;
use sbp_etcd::{Client, ClientConfig, Committed, Compare, EtcdError, Transaction, Write};
use sbp_transport::Descriptors;

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}

/// A client of these members, in this order.
fn client_of(members: Vec<String>) -> Client {
    patient_client_of(members, ClientConfig::CALL_TIMEOUT)
}

/// The same, whose calls to a member take at most so long.
fn patient_client_of(members: Vec<String>, call_timeout: Duration) -> Client {
    Client::new(ClientConfig {
        members,
        tls: None,
        call_timeout,
        sockets: Descriptors::new(8),
    })
    .unwrap()
}

/// An etcd with so many members, which have elected their leader, and a client.
async fn started(members: usize) -> (Etcd, Client) {
    let etcd = Etcd::start(members);
    let client = client_of(etcd.addresses());
    settled(&client).await;
    (etcd, client)
}

/// Waits until something is answered again: while a leader is elected nothing is.
async fn settled(client: &Client) {
    value(client, "settled").await;
}

fn key(name: &str) -> Bytes {
    Bytes::from(format!("/test/{name}"))
}

fn put(name: &str, value: &str) -> Write {
    Write::Put(key(name), Bytes::from(value.to_owned()), None)
}

async fn write(client: &Client, writes: Vec<Write>) -> Result<Committed, EtcdError> {
    let transaction = Transaction {
        writes,
        ..Transaction::default()
    };
    client.commit(&transaction).await
}

/// The value of a key; asked for until there is an answer.
async fn value(client: &Client, name: &str) -> Option<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.get(key(name)).await {
            Ok((found, _)) => return found.map(|found| String::from_utf8(found.value.to_vec()).unwrap()),
            Err(error) => assert!(error.is_of_the_member() && Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes a counter that is raised from `from`, and reads it where it is not so.
fn raise(from: Option<u64>) -> Transaction {
    let counter = key("counter");
    Transaction {
        compares: vec![match from {
            None => Compare::Absent(counter.clone()),
            Some(from) => Compare::Has(counter.clone(), Bytes::from(from.to_string())),
        }],
        writes: vec![Write::Put(
            counter.clone(),
            Bytes::from(from.map_or(1, |from| from + 1).to_string()),
            None,
        )],
        otherwise_read: vec![counter],
    }
}
