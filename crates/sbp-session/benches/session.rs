//! What one call costs, both ends included: request queued, received, answered, answer received.

use std::{hint::black_box, io::IoSlice, time::Instant};

use bytes::BufMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sbp_frame::{OpCode, PayloadPart};
use sbp_session::{Event, Outgoing, Session, SessionConfig};

/// Calls per iteration, all in flight together.
const CALLS: u64 = 256;

/// Moves everything that one end has queued to the other, as much at a time as the receiver offers.
fn carry(from: &mut Session, to: &mut Session, now: Instant) {
    while from.transmit_len() > 0 {
        let mut slices = [IoSlice::new(&[]); 1];
        from.transmit(&mut slices);
        let mut buffer = to.recv_buffer();
        let count = slices[0].len().min(buffer.remaining_mut());
        buffer.put_slice(&slices[0][..count]);
        to.handle_received(count, now);
        from.handle_written(count, now);
    }
}

fn exchange(client: &mut Session, server: &mut Session, payload: &[u8], now: Instant) {
    for user in 0..CALLS {
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header: &[7; 48],
            payload: &[PayloadPart::Copy(payload)],
            user,
            deadline: None,
            receive_charge: 0,
        };
        let _ = client.send_request(now, request);
    }
    carry(client, server, now);
    while let Some(event) = server.poll_event() {
        if let Event::Request(frame) = event {
            let _ = server.send_response(frame.call_id, frame.opcode, true, &[8; 64], &[]);
        }
    }
    carry(server, client, now);
    while let Some(event) = client.poll_event() {
        black_box(&event);
    }
}

fn session(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round trips");
    group.throughput(Throughput::Elements(CALLS));
    for payload_length in [64_usize, 4096] {
        let payload = vec![1; payload_length];
        let now = Instant::now();
        let mut client = Session::new(SessionConfig::client(), now);
        let mut server = Session::new(SessionConfig::server(), now);
        group.bench_function(format!("{CALLS} appends of {payload_length} B"), |bencher| {
            bencher.iter(|| exchange(&mut client, &mut server, &payload, now));
        });
    }
    group.finish();
}

criterion_group!(benches, session);
criterion_main!(benches);
