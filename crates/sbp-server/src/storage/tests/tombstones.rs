//! Deleted streams that are forgotten too early: a start that finds records of them takes the metadata for an old copy.
//!
//! The power goes at any operation around a deletion and what forgets it, and then the newest checkpoint is damaged, so
//! that the start begins from the one before, which tells of more.

use super::*;
use crate::range::{CopyRecord, HeldRange, ReplicaSet};
use crate::roles::Job;
use crate::storage::open_range_server;
use range_server::{Dead, Life, Model, check_stream};

const KEPT: StreamId = StreamId(1);
const GONE: StreamId = StreamId(2);
/// Deleted when nothing of its records is left, and checkpoints tell of its end alone.
const TRIMMED: StreamId = StreamId(3);

/// Damages the newest checkpoint, if there is any.
fn damage_newest_checkpoint(disk: &SimFileSystem) {
    let mut names = disk.list(Path::new("/data")).unwrap();
    names.retain(|name| name.starts_with("checkpoint-") && !name.ends_with(".tmp"));
    if let Some(newest) = names.iter().max() {
        let path = Path::new("/data").join(newest);
        disk.damage(&path, |bytes| bytes[20] ^= 0xFF).unwrap();
    }
}

/// The one range of a stream.
fn whole(stream: StreamId, start: Offset) -> HeldRange {
    HeldRange {
        key: RangeKey {
            stream,
            range: RangeIndex(0),
        },
        epoch: Epoch(0),
        start,
        end: None,
        set: ReplicaSet::alone(),
        copy: CopyRecord::default(),
    }
}

fn trim(life: &Life, model: &mut Model, stream: StreamId, start: Offset) -> Result<(), Dead> {
    model.streams.entry(stream).or_default().ranges = vec![whole(stream, start)];
    life.learn(stream, &[whole(stream, start)])?;
    model.streams.entry(stream).or_default().start = start;
    Ok(())
}

fn delete(life: &Life, model: &mut Model, stream: StreamId) -> Result<(), Dead> {
    model.streams.entry(stream).or_default().deletion_asked = true;
    life.keep(|done| Job::Delete { stream, done })?;
    model.streams.entry(stream).or_default().deleted = true;
    Ok(())
}

/// A range server on which a stream is deleted, whose records go with time.
fn bury(life: &Life, listener: &Listener, model: &mut Model) -> Result<(), Dead> {
    let mut number = 0_u64;
    let mut append = |model: &mut Model, stream| {
        number += 1;
        let body = Bytes::from(format!("{number:016x}").repeat(400));
        model.sent.insert(body.clone());
        let offset = life.append(listener, stream, &body).map_err(|_| Dead)?;
        model.streams.entry(stream).or_default().records.insert(offset, body);
        Ok(())
    };
    for stream in [KEPT, GONE, TRIMMED] {
        model.streams.entry(stream).or_default().ranges = vec![whole(stream, Offset(0))];
        life.learn(stream, &[whole(stream, Offset(0))])?;
    }
    append(model, TRIMMED)?;
    trim(life, model, TRIMMED, Offset(1))?;
    // Into several segments, which they share.
    for _ in 0..16 {
        append(model, GONE)?;
    }
    for _ in 0..4 {
        append(model, KEPT)?;
    }
    life.checkpoint()?;
    delete(life, model, GONE)?;
    for round in 0..6 {
        if round == 3 {
            delete(life, model, TRIMMED)?;
        }
        for _ in 0..8 {
            append(model, KEPT)?;
        }
        // What is kept must not keep the segments that it shares with what is gone.
        let start = *model
            .streams
            .entry(KEPT)
            .or_default()
            .records
            .keys()
            .next_back()
            .unwrap();
        trim(life, model, KEPT, start)?;
        // Between any two checkpoints somebody looks.
        for _ in 0..2 {
            life.range_store.submit(Job::Sweep);
            life.learn(KEPT, &[whole(KEPT, start)])?;
            life.checkpoint()?;
        }
    }
    Ok(())
}

fn live(disk: &SimFileSystem, listener: &Listener, model: &mut Model) -> bool {
    Life::start(disk).is_ok_and(|life| bury(&life, listener, model).is_ok())
}

fn check(disk: &SimFileSystem, model: &Model) -> Result<(), String> {
    let life = Life::start(disk).map_err(|error| format!("does not start: {error}"))?;
    for (id, stream) in &model.streams {
        check_stream(&life, *id, stream, &model.sent)?;
    }
    Ok(())
}

#[test]
fn a_range_server_starts_from_the_checkpoint_before_the_newest_whatever_was_forgotten() {
    let listener = Listener::new();
    let disk = SimFileSystem::new();
    assert!(live(&disk, &listener, &mut Model::default()));
    let forgotten = open_range_server(&parts(&disk), small_log()).unwrap();
    assert_eq!(
        forgotten.hosted_ranges.streams.tombstones().count(),
        0,
        "the script reaches the sweep"
    );
    let length = disk.operations();
    for operation in (1..=length).step_by(2) {
        let disk = SimFileSystem::new();
        disk.power_off_at(operation);
        let mut model = Model::default();
        live(&disk, &listener, &mut model);
        for survival in [Survival::Nothing, Survival::Random(operation)] {
            let left = disk.power_cut(survival);
            damage_newest_checkpoint(&left);
            if let Err(problem) = check(&left, &model) {
                panic!("power off at operation {operation} of {length}: {problem}");
            }
        }
    }
}
