use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_types::{Offset, StreamId, TimestampMs, WriterId};

use super::{BulkFrame, BulkOptions, BulkWriter};
use crate::codes;
use crate::config::RetryPolicy;
use crate::error::{ClientError, ErrorKind};
use crate::features::Durability;
use crate::outcome::{Ack, AppendOutcome};

const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

fn writer(window: usize) -> BulkWriter {
    BulkWriter::new(BulkOptions {
        writer_id: WriterId { high: 1, low: 2 },
        epoch: 7,
        window,
        timeout: Duration::from_secs(10),
        retry: RetryPolicy::default(),
    })
}

fn push(writer: &mut BulkWriter, stream: StreamId, records: u32) -> i64 {
    let stamp = writer.stamp(stream);
    writer.push(stream, Bytes::from(vec![0; 100]), records);
    stamp.base_sequence
}

fn ack(stream: StreamId, base_offset: i64, duplicate: bool) -> Result<Ack, ClientError> {
    Ok(Ack {
        stream,
        base_offset: Offset(base_offset),
        last_offset: Offset(base_offset),
        next_offset: Offset(-1),
        append_time: TimestampMs(0),
        durability: Durability::Fsync,
        duplicate,
    })
}

fn refused(code: ErrorCode) -> Result<Ack, ClientError> {
    Err(ClientError::entry(code, "no", None))
}

fn lost() -> ClientError {
    ClientError::new(ErrorKind::Indeterminate, codes::CONNECTION_LOST, "reset")
}

fn streams(frame: &BulkFrame) -> Vec<i64> {
    frame.entries.iter().map(|entry| entry.stream.0).collect()
}

fn done(writer: &mut BulkWriter, frame: &BulkFrame, results: Vec<Result<Ack, ClientError>>, now: Instant) {
    let outcome = AppendOutcome {
        entries: results.into_iter().collect(),
    };
    writer.handle(frame.number, Ok(outcome), now);
}

#[test]
fn the_first_batch_of_a_stream_goes_alone_and_many_streams_share_a_frame() {
    let (mut writer, now) = (writer(64), Instant::now());
    assert_eq!(
        [(ONE, 5), (TWO, 2), (ONE, 3), (TWO, 1)].map(|(stream, records)| push(&mut writer, stream, records)),
        [0, 0, 5, 2]
    );
    let frame = writer.next_frame(now).unwrap();
    assert_eq!(streams(&frame), [1, 2]);
    assert!(writer.next_frame(now).is_none());
    done(&mut writer, &frame, vec![ack(ONE, 10, false), ack(TWO, 20, false)], now);
    let frame = writer.next_frame(now).unwrap();
    assert_eq!(streams(&frame), [1, 2]);
    done(&mut writer, &frame, vec![ack(ONE, 15, false), ack(TWO, 22, false)], now);
    assert!(writer.is_idle());
    assert_eq!(writer.bytes(), 0);
    let stored = writer.stored();
    assert_eq!(
        (stored[&ONE].first, stored[&ONE].last, stored[&ONE].records),
        (Some(Offset(10)), Some(Offset(17)), 8)
    );
    assert_eq!(stored[&TWO].records, 3);
}

#[test]
fn no_more_batches_of_a_stream_are_on_their_way_than_the_server_remembers() {
    let (mut writer, now) = (writer(3), Instant::now());
    push(&mut writer, ONE, 1);
    let frame = writer.next_frame(now).unwrap();
    done(&mut writer, &frame, vec![ack(ONE, 0, false)], now);
    for _ in 0..5 {
        push(&mut writer, ONE, 1);
    }
    assert_eq!(streams(&writer.next_frame(now).unwrap()), [1, 1, 1]);
    assert!(writer.next_frame(now).is_none());
}

/// Sends one batch of three after the first is stored, each in a frame of its own.
fn three_on_their_way(writer: &mut BulkWriter, now: Instant) -> Vec<BulkFrame> {
    push(writer, ONE, 1);
    let first = writer.next_frame(now).unwrap();
    done(writer, &first, vec![ack(ONE, 0, false)], now);
    (0..3)
        .map(|_| {
            push(writer, ONE, 1);
            writer.next_frame(now).unwrap()
        })
        .collect()
}

#[test]
fn after_trouble_everything_comes_back_before_anything_is_sent_again_in_order() {
    let (mut writer, now) = (writer(64), Instant::now());
    let frames = three_on_their_way(&mut writer, now);
    // The second was stored after all; that is known only when it is sent again.
    writer.handle(frames[0].number, Err(lost()), now);
    assert!(writer.next_frame(now).is_none());
    done(&mut writer, &frames[1], vec![refused(ErrorCode::SEQUENCE_GAP)], now);
    assert!(writer.next_frame(now).is_none(), "one is still on its way");
    writer.handle(frames[2].number, Err(lost()), now);
    let later = writer.poll_timeout().expect("a pause") + Duration::from_millis(1);
    let again = writer.next_frame(later).unwrap();
    assert_eq!(streams(&again), [1], "the first goes alone");
    done(&mut writer, &again, vec![ack(ONE, 1, true)], later);
    assert!(writer.take_repeats().is_empty(), "its own first attempt had stored it");
    let rest = writer.next_frame(later).unwrap();
    assert_eq!(streams(&rest), [1, 1]);
    done(&mut writer, &rest, vec![ack(ONE, 2, false), ack(ONE, 3, false)], later);
    assert!(writer.is_idle());
    assert!(writer.failure().is_none());
    assert_eq!(writer.stored()[&ONE].records, 4);
    assert_eq!(writer.bytes(), 0);
}

#[test]
fn trouble_upon_trouble_queues_nothing_twice() {
    let (mut writer, mut now) = (writer(64), Instant::now());
    for frame in three_on_their_way(&mut writer, now) {
        writer.handle(frame.number, Err(lost()), now);
    }
    for _ in 0..3 {
        now = writer.poll_timeout().unwrap() + Duration::from_millis(1);
        let again = writer.next_frame(now).unwrap();
        writer.handle(again.number, Err(lost()), now);
    }
    for _ in 0..3 {
        now = writer.poll_timeout().unwrap_or(now) + Duration::from_millis(1);
        while let Some(frame) = writer.next_frame(now) {
            let acks = frame.entries.iter().map(|_| ack(ONE, 1, false)).collect();
            done(&mut writer, &frame, acks, now);
        }
    }
    assert!(writer.is_idle());
    assert_eq!(writer.stored()[&ONE].records, 4);
}

#[test]
fn what_somebody_else_had_stored_is_reported() {
    let (mut writer, now) = (writer(64), Instant::now());
    push(&mut writer, ONE, 4);
    push(&mut writer, TWO, 4);
    let frame = writer.next_frame(now).unwrap();
    done(&mut writer, &frame, vec![ack(ONE, 9, true), ack(TWO, -1, true)], now);
    let repeats = writer.take_repeats();
    let places: Vec<_> = repeats
        .iter()
        .map(|repeat| (repeat.stream, repeat.base_offset))
        .collect();
    assert_eq!(places, [(ONE, Some(Offset(9))), (TWO, None)]);
    assert_eq!(writer.stored()[&ONE].repeats, 1);
    assert_eq!(writer.stored()[&TWO].last, None);
}

#[test]
fn what_cannot_pass_ends_the_writer() {
    for code in [
        ErrorCode::SEQUENCE_OVERLAP,
        ErrorCode::WRITER_FENCED,
        ErrorCode::SEQUENCE_GAP,
        ErrorCode::NOT_FOUND,
    ] {
        let (mut writer, now) = (writer(64), Instant::now());
        push(&mut writer, ONE, 1);
        let frame = writer.next_frame(now).unwrap();
        done(&mut writer, &frame, vec![refused(code)], now);
        assert_eq!(writer.failure().map(ClientError::code), Some(code));
        push(&mut writer, TWO, 1);
        assert!(writer.next_frame(now).is_none());
    }
}

#[test]
fn a_batch_is_sent_again_until_its_time_is_over() {
    let (mut writer, now) = (writer(64), Instant::now());
    push(&mut writer, ONE, 1);
    let frame = writer.next_frame(now).unwrap();
    let deadline = frame.deadline;
    assert_eq!(deadline, now + Duration::from_secs(10));
    writer.handle(frame.number, Err(lost()), now);
    let late = now + Duration::from_secs(9);
    let frame = writer.next_frame(late).unwrap();
    assert_eq!(frame.deadline, deadline, "its time began with the first attempt");
    writer.handle(frame.number, Err(lost()), now + Duration::from_secs(10));
    assert!(writer.failure().is_some_and(ClientError::is_indeterminate));
}
