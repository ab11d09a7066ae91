//! What it costs to reckon what is confirmed, for each entry that is queued and synced.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use sbp_replication::{Answer, Quorum, Replica, ReplicatedRange, Rules};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId};

fn primary(servers: i32, acks: usize) -> Replica {
    let range = ReplicatedRange {
        key: RangeKey {
            stream: StreamId(1),
            range: RangeIndex(0),
        },
        epoch: Epoch(0),
        start: Offset::ZERO,
        servers: (1..=servers).map(ServerId).collect(),
        quorum: Quorum::new(usize::try_from(servers).expect("a few"), acks).expect("a set of servers"),
    };
    Replica::open(ServerId(1), Arc::new(range), Rules::default())
}

fn appends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group.bench_function("alone", |bencher| {
        let mut copy = primary(1, 1);
        let mut end = 0;
        bencher.iter(|| {
            end += 1;
            let to = Position::start(Offset(end));
            copy.queued(to);
            copy.synced(to);
            black_box(copy.acknowledged())
        });
    });
    group.bench_function("two of three", |bencher| {
        let mut copy = primary(3, 2);
        let mut end = 0;
        bencher.iter(|| {
            end += 1;
            let to = Position::start(Offset(end));
            copy.queued(to);
            copy.synced(to);
            copy.sent(ServerId(2), None, to);
            copy.sent(ServerId(3), None, to);
            copy.heard(ServerId(2), None, None, Answer::Synced(to));
            copy.heard(ServerId(3), None, None, Answer::Synced(to));
            black_box(copy.acknowledged())
        });
    });
    group.finish();
}

criterion_group!(benches, appends);
criterion_main!(benches);
