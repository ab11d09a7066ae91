use std::io::IoSlice;

use bytes::BytesMut;

use sbp_wire::testing;

use super::*;
use crate::{CallId, FORMAT_FLATBUFFERS, Frame, MAX_FRAME_LENGTH, PRELUDE_LENGTH};

/// The most shared bytes in one write of a queue.
const SHARED_AT_ONCE: usize = 256 * 1024;

fn head(raw_call_id: u32) -> FrameHead {
    FrameHead {
        opcode: OpCode::APPEND,
        flags: Flags::NONE,
        raw_call_id,
        format: FORMAT_FLATBUFFERS,
    }
}

/// Writes everything, at most `step` bytes and `iovecs` slices at a time.
fn write_out(queue: &mut WriteQueue, step: usize, iovecs: usize) -> BytesMut {
    BytesMut::from(&testing::write_out(queue, step, iovecs)[..])
}

fn decode_all(mut bytes: BytesMut) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = Frame::decode(&mut bytes).expect("valid frames") {
        frames.push(frame);
    }
    assert!(bytes.is_empty());
    frames
}

#[test]
fn frames_come_out_as_they_went_in() {
    let large = Bytes::from((0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>());
    let small = Bytes::from_static(b"by reference, yet small");
    for (step, iovecs) in [(1, 1), (7, 3), (4096, 2), (usize::MAX, 64)] {
        let mut queue = WriteQueue::new();
        let parts = [
            PayloadPart::Copy(b"head"),
            PayloadPart::Share(large.clone()),
            PayloadPart::Share(small.clone()),
        ];
        let mut total = 0;
        total += queue.push_frame(head(1), b"first", &[]).unwrap();
        total += queue.push_frame(head(2), b"second", &parts).unwrap();
        total += queue.push_frame(head(3), b"", &[PayloadPart::Copy(b"third")]).unwrap();
        assert_eq!(queue.len(), total);
        let frames = decode_all(write_out(&mut queue, step, iovecs));
        let [first, second, third] = frames.as_slice() else {
            panic!("three frames, not {}", frames.len())
        };
        assert_eq!((first.call_id, &first.header[..]), (CallId::FIRST, &b"first"[..]));
        assert!(first.payload.is_empty());
        let payload = second.payload.clone().into_contiguous();
        assert_eq!(payload, [&b"head"[..], &large, &small].concat());
        assert_eq!(third.payload.clone().into_contiguous(), Bytes::from_static(b"third"));
        assert_eq!(queue.written(), total as u64);
    }
}

#[test]
fn only_large_shared_parts_are_kept_by_reference() {
    let mut queue = WriteQueue::new();
    let below = Bytes::from(vec![1; SHARE_FROM - 1]);
    let at = Bytes::from(vec![2; SHARE_FROM]);
    queue
        .push_frame(head(1), b"h", &[PayloadPart::Share(below.clone())])
        .unwrap();
    let mut slices = [IoSlice::new(&[]); 8];
    let count = queue.slices(&mut slices);
    assert!(slices[..count].iter().all(|slice| slice.as_ptr() != below.as_ptr()));
    queue
        .push_frame(head(2), b"h", &[PayloadPart::Share(at.clone())])
        .unwrap();
    let mut slices = [IoSlice::new(&[]); 8];
    let count = queue.slices(&mut slices);
    assert!(slices[..count].iter().any(|slice| slice.as_ptr() == at.as_ptr()));
}

#[test]
fn a_payload_with_shared_parts_is_summed_as_it_is_offered() {
    let large = Bytes::from((0..700_000_u32).map(|n| n.to_le_bytes()[1]).collect::<Vec<_>>());
    let parts = [
        PayloadPart::Copy(b"before"),
        PayloadPart::Share(large.clone()),
        PayloadPart::Share(large.slice(..SHARE_FROM)),
        PayloadPart::Copy(b"between"),
        PayloadPart::Share(large.slice(1..)),
        PayloadPart::Copy(b"behind"),
    ];
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.as_slice().iter().copied()).collect();
    for (step, iovecs) in [(usize::MAX, 64), (usize::MAX, 1), (100_000, 64), (333, 2)] {
        let mut queue = WriteQueue::new();
        for call in 1..4 {
            queue.push_frame(head(call), b"header", &parts).unwrap();
        }
        let frames = decode_all(write_out(&mut queue, step, iovecs));
        assert_eq!(frames.len(), 3);
        for frame in frames {
            assert_eq!(frame.payload.into_contiguous(), whole);
        }
    }
}

#[test]
fn one_write_takes_a_cache_full_of_shared_bytes() {
    let mut queue = WriteQueue::new();
    let large = Bytes::from(vec![1; 3 * SHARED_AT_ONCE]);
    for call in 0..2 {
        queue
            .push_frame(head(call), b"", &[PayloadPart::Share(large.clone())])
            .unwrap();
    }
    let mut writes = 0;
    while !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); 64];
        let count = queue.slices(&mut slices);
        let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
        assert!(offered <= SHARED_AT_ONCE + 2 * (PRELUDE_LENGTH + 4), "{offered} bytes");
        queue.advance(offered);
        writes += 1;
    }
    assert_eq!(writes, 7, "six of shared bytes, the last checksum");
}

#[test]
fn frames_behind_dropped_ones_are_summed_right() {
    let large = Bytes::from(vec![7; 2 * SHARED_AT_ONCE]);
    let mut queue = WriteQueue::new();
    let parts = [PayloadPart::Copy(b"x"), PayloadPart::Share(large)];
    queue.push_frame(head(1), b"", &parts).unwrap();
    let mut slices = [IoSlice::new(&[]); 8];
    queue.slices(&mut slices);
    queue.advance(usize::MAX);
    queue.push_frame(head(2), b"", &parts).unwrap();
    assert_eq!(decode_all(write_out(&mut queue, 5_000, 8)).len(), 1);
    queue.push_frame(head(3), b"", &parts).unwrap();
    let mut slices = [IoSlice::new(&[]); 8];
    queue.slices(&mut slices);
    queue.clear();
    queue.push_frame(head(4), b"", &parts).unwrap();
    assert_eq!(decode_all(write_out(&mut queue, 5_000, 8)).len(), 1);
}

#[test]
fn a_frame_that_is_too_large_leaves_no_trace() {
    let mut queue = WriteQueue::new();
    let most = Bytes::from(vec![0; MAX_FRAME_LENGTH as usize - 16]);
    assert!(
        queue
            .push_frame(head(1), b"h", &[PayloadPart::Share(most.clone())])
            .is_err()
    );
    assert!(queue.is_empty());
    let pushed = queue.push_frame(head(1), b"", &[PayloadPart::Share(most)]).unwrap();
    assert_eq!(pushed, MAX_FRAME_LENGTH as usize + 4);
}

#[test]
fn advancing_too_far_is_harmless() {
    let mut queue = WriteQueue::new();
    queue.push_frame(head(1), b"h", &[]).unwrap();
    queue.advance(usize::MAX);
    assert!(queue.is_empty());
    queue.push_frame(head(2), b"h", &[]).unwrap();
    assert_eq!(decode_all(write_out(&mut queue, 3, 1)).len(), 1);
}
