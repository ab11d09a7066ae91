//! What is committed is what is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_log::{FileSystem, RealFileSystem};
use sbp_types::{
    ClusterId, Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs,
};

use super::*;
use crate::placement::{Change, RangeRecord, SchemaRecord, ServerRecord, Settings, StreamRecord};
use crate::range::{CopyRecord, ReplicaSet};

fn stream(id: i64, name: Option<&str>) -> MetadataChange {
    let schema = name.map(|_| {
        Arc::new(SchemaRecord {
            ipc: vec![9; 40],
            canonical: vec![3; 20],
            fingerprint: u64::MAX,
        })
    });
    let settings = Settings {
        replica_count: 1,
        ack_count: 1,
        retention_period_ms: 60_000,
        retention_bytes: None,
        schema,
        properties: BTreeMap::from([("team".to_owned(), "süß".to_owned()), (String::new(), String::new())]),
    };
    let record = StreamRecord {
        id: StreamId(id),
        name: name.map(Arc::from),
        settings,
        created_at: TimestampMs(7),
        identity: name.map(|_| StreamIdentity([200; 16])),
        owner: name.map(|_| "billing".into()),
    };
    MetadataChange::Placement(Change::PutStream(Arc::new(record)))
}

fn key(stream: i64, range: i32) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(range),
    }
}

fn range(stream: i64, index: i32, end: Option<i64>) -> MetadataChange {
    MetadataChange::Placement(Change::PutRange(Arc::new(RangeRecord {
        key: key(stream, index),
        epoch: Epoch(2),
        start_offset: Offset(10),
        opened_offset: Offset(10),
        end_offset: end.map(Offset),
        end_marks: 0,
        servers: vec![ServerId(1), ServerId(70_000)],
        incomplete: Vec::new(),
        let_go: Vec::new(),
        unknowing: Vec::new(),
        replica_count: 2,
        ack_count: 1,
    })))
}

fn held(stream: i64, index: i32) -> MetadataChange {
    MetadataChange::Hold(HeldRange {
        key: key(stream, index),
        epoch: Epoch(2),
        start: Offset(10),
        end: Some(Offset(11)),
        set: ReplicaSet::alone(),
        copy: CopyRecord::default(),
    })
}

/// A range that this server holds with others.
fn shared(stream: i64, index: i32) -> MetadataChange {
    let MetadataChange::Hold(alone) = held(stream, index) else {
        unreachable!()
    };
    MetadataChange::Hold(HeldRange {
        set: ReplicaSet::new([70_000, 1, 2].map(ServerId), Some(3)),
        ..alone
    })
}

#[test]
fn a_store_that_is_opened_again_has_what_was_committed() {
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let changes = vec![
        MetadataChange::Started(4),
        MetadataChange::Followed(Term(9)),
        MetadataChange::Cluster(ClusterId(StreamIdentity([3; 16]))),
        MetadataChange::Placement(Change::NextStreamId(StreamId(3))),
        stream(1, Some("a")),
        stream(2, None),
        range(1, 0, Some(10)),
        range(1, 1, None),
        range(2, 0, None),
        held(1, 0),
        shared(1, 1),
    ];
    {
        let mut store = RedbStore::open(&files, directory.path()).unwrap();
        assert_eq!(store.load().unwrap(), vec![]);
        store.commit(&changes).unwrap();
        assert_eq!(store.load().unwrap(), changes);
    }
    let mut store = RedbStore::open(&files, directory.path()).unwrap();
    assert_eq!(store.load().unwrap(), changes);
    store
        .commit(&[MetadataChange::Placement(Change::PutTombstone(StreamId(1)))])
        .unwrap();
    let buried = MetadataChange::Placement(Change::BuriedOn(StreamId(1), [2, 3].map(ServerId).into()));
    store.commit(std::slice::from_ref(&buried)).unwrap();
    let left = store.load().unwrap();
    assert!(left.contains(&buried));
    assert!(left.contains(&MetadataChange::Placement(Change::PutTombstone(StreamId(1)))));
    assert!(!left.contains(&stream(1, Some("a"))) && !left.contains(&range(1, 0, Some(10))));
    assert!(left.contains(&stream(2, None)) && left.contains(&range(2, 0, None)));
    store
        .commit(&[MetadataChange::Placement(Change::DropTombstone(StreamId(1)))])
        .unwrap();
    assert!(!store.load().unwrap().contains(&buried));
}

#[test]
fn records_that_are_cut_or_have_more_are_refused() {
    let MetadataChange::Placement(Change::PutStream(record)) = stream(1, Some("a")) else {
        unreachable!()
    };
    let bytes = codec::encode_stream(&record);
    assert_eq!(
        codec::decode_stream(StreamId(1), &bytes).as_ref(),
        Some(record.as_ref())
    );
    for length in 0..bytes.len() {
        assert_eq!(
            codec::decode_stream(StreamId(1), &bytes[..length]),
            None,
            "cut to {length}"
        );
    }
    assert_eq!(codec::decode_stream(StreamId(1), &[&bytes[..], &[0]].concat()), None);
    for other in [0, 1, 2, 4, 255] {
        let other_version = [&[other], &bytes[1..]].concat();
        assert_eq!(
            codec::decode_stream(StreamId(1), &other_version),
            None,
            "version {other}"
        );
    }
}

#[test]
fn a_stream_of_the_first_version_is_read_without_an_identity() {
    let MetadataChange::Placement(Change::PutStream(record)) = stream(2, None) else {
        unreachable!()
    };
    let now = codec::encode_stream(&record);
    // That version ended with the properties.
    let first = [&[1], &now[1..now.len() - 1]].concat();
    assert_eq!(record.identity, None);
    assert_eq!(
        codec::decode_stream(StreamId(2), &first).as_ref(),
        Some(record.as_ref())
    );
    assert_eq!(codec::decode_stream(StreamId(2), &[&first[..], &[0]].concat()), None);
}

/// Every flipped byte of the file is noticed, or changes nothing: it lies in a page that is not used, or in what the
/// database remembers of the transaction before.
#[test]
fn a_flipped_byte_is_noticed_or_means_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let mut store = RedbStore::open(&files, directory.path()).unwrap();
    for number in 1..40 {
        let changes = [
            stream(number, Some(&format!("name-{number}"))),
            range(number, 0, None),
            held(number, 0),
        ];
        store.commit(&changes).unwrap();
    }
    let open = std::fs::read(directory.path().join(FILE)).unwrap();
    drop(store);
    let closed = std::fs::read(directory.path().join(FILE)).unwrap();
    for (what, bytes) in [("open", open), ("closed", closed)] {
        let good = read_copy(bytes.clone()).unwrap();
        assert_eq!((good.changes.len(), good.newest), (3 * 39, true), "{what}");
        assert!(good.whole, "{what}");
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let header = 0..512;
        let some = (0..400).map(|_| random.usize(..bytes.len()));
        let mut noticed = 0;
        for position in header.chain(some) {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position % 8);
            match read_copy(flipped) {
                Err(_) => noticed += 1,
                Ok(copied) if !copied.newest || copied.whole != good.whole => noticed += 1,
                Ok(copied) => assert!(copied.changes == good.changes, "{what}, byte {position}, seed {seed}"),
            }
        }
        assert!(noticed > 20, "{what}: {noticed}");
    }
}

#[test]
fn ranges_that_are_held_alone_are_stored_as_before_there_were_replicas() {
    let MetadataChange::Hold(alone) = held(1, 0) else {
        unreachable!()
    };
    let bytes = codec::encode_held(&alone);
    // The version, epoch 2, offset 10, an end, offset 11: what earlier versions wrote, and read as "this server alone".
    let before = [
        &[1][..],
        &2_i64.to_be_bytes(),
        &10_i64.to_be_bytes(),
        &[1],
        &11_i64.to_be_bytes(),
    ]
    .concat();
    assert_eq!(bytes, before);
    assert_eq!(codec::decode_held(alone.key, &before), Some(alone));
    let MetadataChange::Hold(shared) = shared(1, 0) else {
        unreachable!()
    };
    let bytes = codec::encode_held(&shared);
    assert_eq!(bytes[0], 2);
    for length in 0..bytes.len() {
        assert_eq!(
            codec::decode_held(shared.key, &bytes[..length]),
            None,
            "cut at {length}"
        );
    }
    let newer = [&[3], &bytes[1..]].concat();
    assert_eq!(
        codec::decode_held(shared.key, &newer),
        None,
        "an unknown version is not guessed"
    );
    assert_eq!(codec::decode_held(shared.key, &bytes), Some(shared));
}

#[test]
fn where_a_range_began_and_how_many_parts_begin_it_are_stored() {
    let MetadataChange::Placement(Change::PutRange(range)) = range(1, 1, None) else {
        unreachable!()
    };
    let MetadataChange::Hold(held) = shared(1, 1) else {
        unreachable!()
    };
    for opened in [3, 10] {
        let range = RangeRecord {
            opened_offset: Offset(opened),
            ..RangeRecord::clone(&range)
        };
        let lacking = RangeRecord {
            incomplete: vec![ServerId(70_000)],
            ..range.clone()
        };
        let unknowing = RangeRecord {
            unknowing: vec![ServerId(1)],
            ..lacking.clone()
        };
        for record in [lacking, unknowing] {
            let bytes = codec::encode_range(&record);
            assert_eq!(codec::decode_range(range.key, &bytes), Some(record));
        }
        assert_eq!(
            codec::decode_range(range.key, &codec::encode_range(&range)),
            Some(range.clone())
        );
        let held = HeldRange {
            copy: CopyRecord {
                opened: (opened < 10).then_some(Offset(opened)),
                writers_parts: 2,
                ..held.copy
            },
            ..held.clone()
        };
        let disputed = HeldRange {
            copy: CopyRecord {
                disputed: Some(Position {
                    offset: Offset(12),
                    marks: 3,
                }),
                ..held.copy
            },
            ..held.clone()
        };
        for held in [held, disputed] {
            assert_eq!(codec::decode_held(held.key, &codec::encode_held(&held)), Some(held));
        }
    }
}

#[test]
fn what_is_to_become_of_range_servers_is_kept_and_records_from_before_that_are_read() {
    let draining = |id, draining| ServerRecord {
        draining,
        ..ServerRecord::new(ServerId(id), "host:1")
    };
    let started = |id, starts, is_draining| ServerRecord {
        starts,
        ..draining(id, is_draining)
    };
    for server in [
        draining(7, false),
        draining(7, true),
        started(7, 1, false),
        started(7, u64::MAX, true),
    ] {
        let bytes = codec::encode_server(&server);
        assert_eq!(codec::decode_server(ServerId(7), &bytes), Some(server));
    }
    let of_before = b"\x01\0\0\0\x06host:1";
    assert_eq!(codec::encode_server(&draining(7, false)), of_before);
    assert_eq!(codec::decode_server(ServerId(7), of_before), Some(draining(7, false)));
    assert_eq!(
        codec::decode_server(ServerId(7), b"\x04\0\0\0\x06host:1"),
        None,
        "a newer version may mean anything"
    );
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let put = |server| MetadataChange::Placement(Change::PutServer(Arc::new(server)));
    let stored = |changes: &[MetadataChange]| {
        let mut store = RedbStore::open(&files, directory.path()).unwrap();
        store.commit(changes).unwrap();
        drop(store);
        RedbStore::open(&files, directory.path()).unwrap().load().unwrap()
    };
    let both = [put(draining(1, false)), put(draining(2, true))];
    assert_eq!(stored(&both), both);
    assert_eq!(stored(&[put(draining(2, false))])[1], put(draining(2, false)));
    assert_eq!(stored(&[put(started(2, 9, true))])[1], put(started(2, 9, true)));
}

#[test]
fn what_the_server_was_let_go_of_is_kept_and_an_earlier_version_refuses_the_store_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let format = |store: &RedbStore| store.format().unwrap();
    let mut store = RedbStore::open(&files, directory.path()).unwrap();
    store.commit(&[held(1, 0), held(1, 1), held(2, 0)]).unwrap();
    assert_eq!(format(&store), 1);
    let (one, two) = (MetadataChange::LetGo(key(1, 0)), MetadataChange::LetGo(key(2, 0)));
    store.commit(&[one.clone(), two.clone()]).unwrap();
    assert_eq!(format(&store), 2);
    drop(store);
    let mut store = RedbStore::open(&files, directory.path()).unwrap();
    assert_eq!(store.load().unwrap(), [held(1, 1), one.clone(), two]);
    store.commit(&[MetadataChange::Cleared(key(2, 0))]).unwrap();
    assert_eq!(format(&store), 2);
    assert_eq!(store.load().unwrap(), [held(1, 1), one.clone()]);
    store.commit(&[MetadataChange::Cleared(key(1, 0)), held(1, 0)]).unwrap();
    assert_eq!(format(&store), 1, "nothing is left that it would not know");
    assert_eq!(store.load().unwrap(), [held(1, 0), held(1, 1)]);
    // A deleted stream is remembered as such.
    store.commit(&[one]).unwrap();
    let deleted = MetadataChange::Placement(Change::PutTombstone(StreamId(1)));
    store.commit(std::slice::from_ref(&deleted)).unwrap();
    assert_eq!((format(&store), store.load().unwrap()), (1, vec![deleted]));
}

#[test]
fn who_was_let_go_of_a_range_is_kept_with_it() {
    let MetadataChange::Placement(Change::PutRange(range)) = range(1, 1, Some(20)) else {
        unreachable!()
    };
    for incomplete in [vec![], vec![ServerId(70_000)]] {
        let range = RangeRecord {
            incomplete,
            let_go: vec![ServerId(3), ServerId(4)],
            ..RangeRecord::clone(&range)
        };
        let bytes = codec::encode_range(&range);
        assert_eq!(bytes[0], 5, "earlier versions read up to 4");
        assert_eq!(codec::decode_range(range.key, &bytes), Some(range));
    }
}
