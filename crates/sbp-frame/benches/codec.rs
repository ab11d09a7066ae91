//! What one frame costs: into a write queue, and out of a receive buffer.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, Frame, FrameHead, OpCode, PayloadPart, PushFrame, WriteQueue};

/// Frames per iteration: enough that one buffer's upkeep is shared as it is in a busy connection.
const FRAMES: u32 = 256;

fn head(raw_call_id: u32) -> FrameHead {
    FrameHead {
        opcode: OpCode::APPEND,
        flags: Flags::NONE,
        raw_call_id,
        format: FORMAT_FLATBUFFERS,
    }
}

fn fill(queue: &mut WriteQueue, header: &[u8], payload: &[u8]) {
    for call in 1..=FRAMES {
        let _ = queue.push_frame(head(call), header, &[PayloadPart::Copy(payload)]);
    }
}

fn codec(criterion: &mut Criterion) {
    for payload_length in [0_usize, 64, 4096] {
        let header = [7_u8; 40];
        let payload = vec![1_u8; payload_length];
        let mut group = criterion.benchmark_group(format!("{FRAMES} frames, payload {payload_length} B"));
        group.throughput(Throughput::Elements(u64::from(FRAMES)));
        let mut queue = WriteQueue::new();
        group.bench_function("encode", |bencher| {
            bencher.iter(|| {
                fill(&mut queue, &header, &payload);
                queue.advance(black_box(queue.len()));
            });
        });
        fill(&mut queue, &header, &payload);
        let mut bytes = Vec::new();
        while !queue.is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 1];
            queue.slices(&mut slices);
            bytes.extend_from_slice(&slices[0]);
            let count = slices[0].len();
            queue.advance(count);
        }
        let mut buffer = BytesMut::with_capacity(bytes.len());
        group.bench_function("decode", |bencher| {
            bencher.iter(|| {
                // The driver's read fills the block; this copy stands for it and is part of the figure.
                buffer.reserve(bytes.len());
                buffer.extend_from_slice(&bytes);
                while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
                    black_box(&frame);
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
