//! What is committed is what is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_log::{FileSystem, RealFileSystem};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::*;
use crate::placement::{Change, RangeRecord, SchemaRecord, Settings, StreamRecord};

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
        end_offset: end.map(Offset),
        servers: vec![ServerId(1), ServerId(70_000)],
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
    })
}

#[test]
fn a_store_that_is_opened_again_has_what_was_committed() {
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let changes = vec![
        MetadataChange::Started(4),
        MetadataChange::Placement(Change::NextStreamId(StreamId(3))),
        stream(1, Some("a")),
        stream(2, None),
        range(1, 0, Some(10)),
        range(1, 1, None),
        range(2, 0, None),
        held(1, 0),
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
    let left = store.load().unwrap();
    assert!(left.contains(&MetadataChange::Placement(Change::PutTombstone(StreamId(1)))));
    assert!(!left.contains(&stream(1, Some("a"))) && !left.contains(&range(1, 0, Some(10))));
    assert!(left.contains(&stream(2, None)) && left.contains(&range(2, 0, None)));
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
    for other in [0, 1, 3, 255] {
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
