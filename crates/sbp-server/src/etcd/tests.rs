//! Keys, records and transactions, without an etcd: `tests/e2e/etcd` has one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_etcd::{Client, ClientConfig, KeyValue, Write};
use sbp_messages::ErrorCode;
use sbp_replication::Term;
use sbp_replication::leadership::{Ask, Leader, Lease};
use sbp_transport::Descriptors;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId, TimestampMs};

use super::keys::{Keys, Named};
use super::membership::Membership;
use super::records::{Next, Writes, changes_of};
use super::store::EtcdStore;
use crate::placement::{
    Change, CommitError, Election, PlacementStore, RangeRecord, ServerRecord, Settings, StreamRecord,
};

const NEXT: Next = Next {
    stream: StreamId(1),
    server: ServerId(1),
};

fn keys() -> Keys {
    Keys::new("orders")
}

fn stream(id: i64, properties: usize) -> Change {
    let properties = [("p".to_owned(), "x".repeat(properties))];
    Change::PutStream(Arc::new(StreamRecord {
        id: StreamId(id),
        name: Some("a name".into()),
        settings: Settings {
            replica_count: 3,
            ack_count: 2,
            retention_period_ms: 0,
            retention_bytes: None,
            schema: None,
            properties: properties.into(),
        },
        created_at: TimestampMs(5),
        identity: None,
        owner: None,
    }))
}

fn key(stream: i64, range: i32) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(range),
    }
}

fn range(stream: i64, index: i32) -> Change {
    Change::PutRange(Arc::new(RangeRecord {
        key: key(stream, index),
        epoch: Epoch(2),
        start_offset: Offset(7),
        opened_offset: Offset(7),
        end_offset: None,
        end_marks: 0,
        servers: vec![ServerId(1), ServerId(2)],
        incomplete: Vec::new(),
        let_go: Vec::new(),
        unknowing: Vec::new(),
        replica_count: 3,
        ack_count: 2,
    }))
}

fn server(id: i32) -> Change {
    Change::PutServer(Arc::new(ServerRecord::new(ServerId(id), "a:1")))
}

/// Does what the writes of these changes say to keys in their order.
fn write(stored: &mut std::collections::BTreeMap<Bytes, Bytes>, changes: &[Change], next: Next) -> Next {
    let writes = Writes::new(&keys(), changes, next);
    let next = writes.next;
    for write in writes.into_writes() {
        match write {
            Write::Put(key, value, lease) => {
                assert_eq!(lease, None);
                stored.insert(key, value);
            }
            Write::Delete(key) => {
                stored.remove(&key);
            }
            Write::DeletePrefix(prefix) => stored.retain(|key, _| !key.starts_with(&prefix)),
        }
    }
    next
}

fn read(stored: &std::collections::BTreeMap<Bytes, Bytes>) -> Vec<Change> {
    let found = |(key, value): (&Bytes, &Bytes)| {
        let found = KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: 1,
            mod_revision: 1,
            lease: None,
        };
        changes_of(&keys(), &found).unwrap()
    };
    stored.iter().flat_map(found).collect()
}

/// A server that is to be emptied.
fn draining(id: i32) -> Change {
    Change::PutServer(Arc::new(ServerRecord {
        draining: true,
        ..ServerRecord::new(ServerId(id), "b:1")
    }))
}

/// A server that has said how often it was started.
fn started(id: i32) -> Change {
    Change::PutServer(Arc::new(ServerRecord {
        starts: 5,
        ..ServerRecord::new(ServerId(id), "b:1")
    }))
}

#[test]
fn what_is_written_is_read_again() {
    let mut stored = std::collections::BTreeMap::new();
    let changes = [
        Change::NextStreamId(StreamId(9)),
        Change::NextServerId(ServerId(3)),
        stream(8, 1),
        range(8, 0),
        range(8, 1),
        stream(7, 1),
        range(7, 0),
        server(2),
        draining(3),
        started(4),
    ];
    let next = write(&mut stored, &changes, NEXT);
    assert_eq!((next.stream, next.server), (StreamId(9), ServerId(3)));
    let expected = [
        Change::NextStreamId(StreamId(9)),
        Change::NextServerId(ServerId(3)),
        range(7, 0),
        range(8, 0),
        range(8, 1),
        server(2),
        draining(3),
        started(4),
        stream(7, 1),
        stream(8, 1),
    ];
    assert_eq!(read(&stored), expected);
    // Within one transaction each key is written once, also where a stream goes that has just been changed.
    let changes = [
        range(8, 2),
        Change::RemoveRange(key(8, 0)),
        Change::PutTombstone(StreamId(8)),
        range(7, 1),
        Change::RemoveRange(key(7, 0)),
        Change::NextStreamId(StreamId(4)),
    ];
    let next = write(&mut stored, &changes, next);
    assert_eq!(next.stream, StreamId(9), "it never falls");
    let expected = [
        Change::PutTombstone(StreamId(8)),
        Change::NextStreamId(StreamId(9)),
        Change::NextServerId(ServerId(3)),
        range(7, 1),
        server(2),
        draining(3),
        started(4),
        stream(7, 1),
    ];
    assert_eq!(read(&stored), expected);
    let buried = Change::BuriedOn(StreamId(8), [2, 3].map(ServerId).into());
    write(&mut stored, &[Change::PutTombstone(StreamId(8)), buried.clone()], next);
    assert_eq!(read(&stored)[0], buried);
    write(&mut stored, &[Change::DropTombstone(StreamId(8))], next);
    assert!(!read(&stored).contains(&buried));
    assert!(!read(&stored).contains(&Change::PutTombstone(StreamId(8))));
}

#[test]
fn keys_are_in_the_order_of_numbers_and_unknown_ones_are_not_guessed() {
    let keys = keys();
    assert_eq!(
        keys.range(key(255, 16)),
        "/sbp/orders/v1/range/00000000000000ff/00000010"
    );
    assert!(keys.stream(StreamId(9)) < keys.stream(StreamId(16)));
    assert_eq!(keys.name(&keys.range(key(3, 4))), Some(Named::Range(key(3, 4))));
    assert_eq!(keys.address_of(&keys.driver("a:1")).as_deref(), Some("a:1"));
    for apart in [keys.leader(), keys.count(), keys.driver("a:1")] {
        assert_eq!(keys.name(&apart), Some(Named::Apart));
    }
    for unknown in [
        "/sbp/orders/v1/streams/0000000000000001",
        "/sbp/orders/v1/stream/1",
        "/sbp/orders/v2/next",
        "/sbp/orders/v1/count/x",
        "",
    ] {
        assert_eq!(keys.name(unknown.as_bytes()), None, "{unknown}");
    }
    let unreadable = KeyValue {
        key: keys.next(),
        value: "9".into(),
        create_revision: 1,
        mod_revision: 1,
        lease: None,
    };
    let error = changes_of(&keys, &unreadable).unwrap_err();
    assert!(error.contains("/sbp/orders/v1/next"), "{error}");
}

/// A store whose etcd is nowhere, of a placement driver that does not lead.
fn store(runtime: &tokio::runtime::Runtime) -> EtcdStore {
    EtcdStore {
        client: Arc::new(
            Client::new(ClientConfig {
                members: vec!["127.0.0.1:1".to_owned()],
                tls: None,
                call_timeout: Duration::from_millis(1),
                sockets: Descriptors::new(1),
            })
            .unwrap(),
        ),
        runtime: runtime.handle().clone(),
        keys: keys(),
        membership: Arc::new(Membership::new("a:1", "etcd://127.0.0.1:1/orders".to_owned())),
        term: Term(5),
        count: None,
        number: 0,
        next: NEXT,
        over: None,
    }
}

#[test]
fn a_transaction_has_room_for_so_much_and_what_never_fits_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut store = store(&runtime);
    let servers: Vec<_> = (1..=127).map(server).collect();
    assert!(store.has_room(&servers[..126], &servers[126..]));
    assert!(!store.has_room(&servers, &[server(128)]));
    assert!(store.has_room(&servers, &[server(5)]), "the same key again");
    let half = [stream(1, 600 << 10)];
    assert!(store.has_room(&[], &half) && !store.has_room(&half, &[stream(2, 600 << 10)]));
    let error = store.commit(&[stream(1, 2 << 20), range(1, 0)]).unwrap_err();
    assert!(
        matches!(&error, CommitError::Refused(why) if why.contains("2097")),
        "{error}"
    );
    assert!(store.over.is_none(), "nothing was sent");
}

#[test]
fn a_placement_driver_that_does_not_lead_sends_nothing_and_takes_no_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut store = store(&runtime);
    for _ in 0..2 {
        let error = store.commit(&[server(1)]).unwrap_err();
        assert!(matches!(error, CommitError::Deposed(_)), "{error}");
    }
    assert_eq!(store.number, 1, "the second was not even begun");
}

#[test]
fn who_does_not_lead_names_who_does() {
    let membership = Membership::new("a:1", "etcd://e:2379/orders".to_owned());
    let refusal = membership.term().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PD_NO_AVAILABLE_RS);
    assert!(
        refusal
            .message
            .contains("metadata store unreachable: etcd://e:2379/orders"),
        "{}",
        refusal.message
    );
    let (mine, theirs) = (Lease(1), Lease(2));
    let now = membership.now();
    let next = || membership.leadership().next(membership.now());
    assert_eq!(next(), Some(Ask::Grant));
    membership.leadership().granted(Some(mine), now, now);
    assert_eq!(next(), Some(Ask::Announce(mine)));
    membership.leadership().announced(true, now);
    assert_eq!(membership.term().unwrap_err().code, ErrorCode::PD_NOT_LEADER);
    assert_eq!(next(), Some(Ask::Claim(mine)));
    let other = Leader {
        address: "b:1".to_owned(),
        lease: theirs,
        term: Term(4),
    };
    membership.leadership().looked(Ok(Some(other)), now);
    let driver = |address: &str, format: &str| (address.to_owned(), Bytes::from(format.to_owned()));
    let reads = || [2, 3].map(|format| membership.all_read(format));
    assert_eq!(reads(), [false, false], "nobody is known");
    for (formats, read) in [
        (["3", "3"], [true, true]),
        (["3", "2"], [true, false]),
        (["3", ""], [false, false]),
        (["3", "4"], [true, true]),
        (["3", "x"], [false, false]),
    ] {
        membership.note_drivers(vec![driver("c:1", formats[0]), driver("a:1", formats[1])]);
        assert_eq!(reads(), read, "{formats:?}");
    }
    membership.note_drivers(vec![driver("c:1", "3"), driver("a:1", "3")]);
    let refusal = membership.term().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PD_NOT_LEADER);
    let named = sbp_messages::PlacementDriverCluster::from_detail(&refusal.detail).unwrap();
    assert_eq!(
        (named.leader().unwrap().advertise_addr.as_str(), named.term),
        ("b:1", 4)
    );
    let cluster = membership.cluster();
    let nodes: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| (node.advertise_addr.as_str(), node.is_leader))
        .collect();
    assert_eq!(nodes, [("a:1", false), ("b:1", true), ("c:1", false)]);
}
