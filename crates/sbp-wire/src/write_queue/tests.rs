use super::*;
use crate::testing::write_out;

/// Pushes a frame of so many bytes as protocols do: small ones whole.
fn push(queue: &mut WriteQueue, length: usize) {
    if length <= WHOLE_UP_TO {
        queue.push_whole(length, |block| block.resize(block.len() + length, 1));
    } else {
        queue.push(&vec![1; length]);
    }
}

#[test]
fn bytes_come_out_in_their_order_with_and_without_a_checksum() {
    let large = Bytes::from((0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>());
    for (step, iovecs) in [(1, 1), (7, 3), (4096, 2), (usize::MAX, 64)] {
        let mut queue = WriteQueue::new();
        queue.push(b"copied");
        queue.push_shared(large.clone());
        queue.push_shared(Bytes::from_static(b"short"));
        queue.push_whole(5, |block| block.extend_from_slice(b"whole"));
        let mut before = Checksum::new();
        before.update(b"");
        queue.push_summed(before, large.clone());
        queue.push_sum(Checksum::new());
        queue.push_shared(large.clone());
        let sum = crate::checksum(&large).to_be_bytes();
        let expected = [b"copied", &large[..], b"short", b"whole", &large, &sum, &large].concat();
        assert_eq!(queue.len(), expected.len());
        assert!(write_out(&mut queue, step, iovecs) == expected, "in steps of {step}");
        assert_eq!(queue.written(), expected.len() as u64);
    }
}

#[test]
fn only_as_many_bytes_as_are_worth_it_are_kept_by_reference() {
    for (length, is_kept) in [(SHARE_FROM - 1, false), (SHARE_FROM, true)] {
        let (mut queue, bytes) = (WriteQueue::new(), Bytes::from(vec![2; length]));
        queue.push_shared(bytes.clone());
        let mut slices = [IoSlice::new(&[]); 8];
        let count = queue.slices(&mut slices);
        let found = slices[..count].iter().any(|slice| slice.as_ptr() == bytes.as_ptr());
        assert_eq!(found, is_kept, "{length} bytes");
    }
}

#[test]
fn emptied_blocks_are_used_again() {
    let mut queue = WriteQueue::new();
    for round in 0..100_u32 {
        for _ in 0..2_000 {
            push(&mut queue, 124);
        }
        let blocks = queue.segments.len();
        queue.advance(queue.len());
        if round > 4 {
            assert_eq!(queue.spare.len(), blocks.min(SPARE_BLOCKS), "round {round}");
            assert!(
                queue.spare.iter().all(|block| block.capacity() == BLOCK),
                "round {round}"
            );
        }
    }
    queue.shrink();
    assert_eq!(queue.spare.capacity(), 0);
}

#[test]
fn a_queue_with_little_to_say_stays_small() {
    let mut queue = WriteQueue::new();
    for _ in 0..1_000 {
        push(&mut queue, 4_020);
        queue.advance(queue.len());
    }
    let held: usize = queue.spare.iter().map(Vec::capacity).sum();
    assert!(held <= 4_100, "{held} bytes for frames of 4,020");
}

#[test]
fn advancing_too_far_is_harmless() {
    let mut queue = WriteQueue::new();
    push(&mut queue, 10);
    queue.advance(usize::MAX);
    assert!(queue.is_empty());
    queue.push(b"next");
    assert_eq!(write_out(&mut queue, 3, 1), b"next");
}
