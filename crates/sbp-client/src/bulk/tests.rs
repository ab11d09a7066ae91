use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_types::{Offset, StreamId, WriterId};

use super::{BulkOptions, BulkWriter, Frame};
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::submission::attempt::AttemptEnd;
use crate::writer::machine::tests::{failed, lost, refused, stored};

const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

fn writer(window: usize) -> BulkWriter {
    let options = BulkOptions {
        writer_id: WriterId { high: 1, low: 2 },
        epoch: 7,
        window,
        timeout: Duration::from_secs(10),
        retry: RetryPolicy::default(),
    };
    // Nobody hears what would be told: the tests tell it themselves.
    BulkWriter::new(options, std::sync::mpsc::channel().0)
}

fn push(writer: &mut BulkWriter, stream: StreamId, records: u32) -> i64 {
    let stamp = writer.stamp(stream);
    writer.push(stream, Bytes::from(vec![0; 100]), records);
    stamp.base_sequence
}

fn no(code: ErrorCode) -> AttemptEnd {
    failed(refused(code), -1)
}

fn streams(frame: &Frame) -> Vec<i64> {
    frame.entries.iter().map(|entry| entry.stream.0).collect()
}

fn done(writer: &mut BulkWriter, frame: &Frame, ends: Vec<AttemptEnd>, now: Instant) {
    assert_eq!(frame.tokens.len(), ends.len());
    for (token, end) in frame.tokens.iter().zip(ends) {
        writer.handle_end(now, *token, end);
    }
}

/// The connection with a frame is lost.
fn lose(writer: &mut BulkWriter, frame: &Frame, now: Instant) {
    let ends = frame.tokens.iter().map(|_| failed(lost(), -1)).collect();
    done(writer, frame, ends, now);
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
    done(&mut writer, &frame, vec![stored(10, false), stored(20, false)], now);
    let frame = writer.next_frame(now).unwrap();
    assert_eq!(streams(&frame), [1, 2]);
    done(&mut writer, &frame, vec![stored(15, false), stored(22, false)], now);
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
    done(&mut writer, &frame, vec![stored(0, false)], now);
    for _ in 0..5 {
        push(&mut writer, ONE, 1);
    }
    assert_eq!(streams(&writer.next_frame(now).unwrap()), [1, 1, 1]);
    assert!(writer.next_frame(now).is_none());
}

/// Sends one batch of three after the first is stored, each in a frame of its own.
fn three_on_their_way(writer: &mut BulkWriter, now: Instant) -> Vec<Frame> {
    push(writer, ONE, 1);
    let first = writer.next_frame(now).unwrap();
    done(writer, &first, vec![stored(0, false)], now);
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
    lose(&mut writer, &frames[0], now);
    assert!(writer.next_frame(now).is_none());
    done(&mut writer, &frames[1], vec![no(ErrorCode::SEQUENCE_GAP)], now);
    assert!(writer.next_frame(now).is_none(), "one is still on its way");
    lose(&mut writer, &frames[2], now);
    let later = writer.poll_timeout().expect("a pause") + Duration::from_millis(1);
    let again = writer.next_frame(later).unwrap();
    assert_eq!(streams(&again), [1], "the first goes alone");
    done(&mut writer, &again, vec![stored(1, true)], later);
    assert!(writer.take_repeats().is_empty(), "its own first attempt had stored it");
    let rest = writer.next_frame(later).unwrap();
    assert_eq!(streams(&rest), [1, 1]);
    done(&mut writer, &rest, vec![stored(2, false), stored(3, false)], later);
    assert!(writer.is_idle());
    assert!(writer.failure().is_none());
    assert_eq!(writer.stored()[&ONE].records, 4);
    assert_eq!(writer.bytes(), 0);
}

#[test]
fn trouble_upon_trouble_queues_nothing_twice() {
    let (mut writer, mut now) = (writer(64), Instant::now());
    for frame in three_on_their_way(&mut writer, now) {
        lose(&mut writer, &frame, now);
    }
    for _ in 0..3 {
        now = writer.poll_timeout().unwrap() + Duration::from_millis(1);
        let again = writer.next_frame(now).unwrap();
        lose(&mut writer, &again, now);
    }
    for _ in 0..3 {
        now = writer.poll_timeout().unwrap_or(now) + Duration::from_millis(1);
        while let Some(frame) = writer.next_frame(now) {
            let acks = frame.entries.iter().map(|_| stored(1, false)).collect();
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
    done(&mut writer, &frame, vec![stored(9, true), stored(-1, true)], now);
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
        done(&mut writer, &frame, vec![no(code)], now);
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
    lose(&mut writer, &frame, now);
    let late = now + Duration::from_secs(9);
    let frame = writer.next_frame(late).unwrap();
    assert_eq!(frame.deadline, deadline, "its time began with the first attempt");
    lose(&mut writer, &frame, now + Duration::from_secs(10));
    assert!(writer.failure().is_some_and(ClientError::is_indeterminate));
}
