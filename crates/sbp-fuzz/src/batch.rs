//! Record batches: what a server's head reader and a client's reader make of the same bytes agrees, and what is promised
//! about a batch holds for whatever is read of it.

use std::slice;

use bytes::{Bytes, BytesMut};
use sbp_record::{Batch, Compression, EncodeOptions, RecordsBuilder, StreamSchema, encode_raw, inspect, split_batches};
use sbp_types::Offset;

use crate::vectors;

/// A schema that typed batches are read with, and the body of one: other encoders' bytes.
const SCHEMA: &[u8] = include_bytes!("../../sbp-record/tests/vectors/pyarrow-schema.bin");
const BODY: &[u8] = include_bytes!("../../sbp-record/tests/vectors/pyarrow-batch.bin");

/// The first byte says whether a schema is at hand, and where the payload is cut; the rest is a payload of batches.
pub fn run(data: &[u8]) {
    let Some((choice, payload)) = data.split_first() else {
        return;
    };
    let payload = Bytes::copy_from_slice(payload);
    let schema = StreamSchema::from_ipc(SCHEMA).expect("a schema");
    let schema = (choice & 1 == 1).then_some(&schema);
    heads(&payload, usize::from(choice >> 1));
    // What follows a batch that cannot be cut off is nobody's.
    let split: Vec<Bytes> = split_batches(&payload).map_while(Result::ok).collect();
    let read_of_it: usize = split.iter().map(Bytes::len).sum();
    assert!(read_of_it <= payload.len(), "more was read than there is");
    for bytes in &split {
        read(bytes, schema);
    }
}

/// The vectors of all batches, alone and one behind the other; batches that are compressed; columns.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut batches: Vec<Vec<u8>> = Vec::new();
    for (_, vectors) in vectors::files("batches") {
        let parts = vectors.into_iter().flat_map(|vector| vector.parts);
        batches.extend(parts.map(|(_, bytes)| bytes));
    }
    let options = EncodeOptions {
        compression: Compression::LZ4,
        ..EncodeOptions::default()
    };
    let mut packed = BytesMut::new();
    encode_raw(&options, &[7; 500], &mut packed).expect("a batch");
    batches.push(packed.to_vec());
    let mut columns = BytesMut::new();
    encode_raw(&EncodeOptions::default(), BODY, &mut columns).expect("a batch");
    batches.push(columns.to_vec());
    batches.push(batches.concat());
    let choices = [0, 1, 40 << 1];
    let seeds = batches
        .iter()
        .flat_map(|batch| choices.map(|choice| [&[choice], batch.as_slice()].concat()));
    seeds.collect()
}

/// A server looks at the head alone, in whatever pieces the bytes lie.
fn heads(payload: &Bytes, cut: usize) {
    let whole = inspect(slice::from_ref(payload), true);
    let cut = cut.min(payload.len());
    let pieces = [payload.slice(..cut), payload.slice(cut..)];
    let cut = inspect(&pieces, true);
    match (&whole, &cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut, "the pieces change nothing"),
        (Err(_), Err(_)) => {}
        _ => panic!("one whole: {whole:?}; in pieces: {cut:?}"),
    }
    let Ok(head) = whole else { return };
    let read = head.head_length + head.body_length;
    assert!(
        read <= payload.len() && payload.len() - read < 16,
        "an entry is one batch"
    );
    let rest = payload.get(read..).unwrap_or_default();
    assert!(rest.iter().all(|byte| *byte == 0), "with zeros behind it");
    assert!(inspect(slice::from_ref(payload), false).is_ok(), "less is looked at");
}

fn read(bytes: &Bytes, schema: Option<&StreamSchema>) {
    let Ok(batch) = Batch::decode(bytes.clone(), schema) else {
        return;
    };
    let (base, end, count) = (batch.base_offset(), batch.end_offset(), batch.record_count());
    assert_eq!(
        end.distance_from(base),
        u64::try_from(count).expect("a number"),
        "offsets are counted"
    );
    if let Ok(records) = batch.records() {
        let offsets: Vec<Offset> = records.map(|record| record.offset).collect();
        assert_eq!(offsets.len(), count, "as many records as it says");
        let follow = offsets
            .iter()
            .zip(0_u64..)
            .all(|(offset, place)| offset.distance_from(base) == place);
        assert!(follow, "each behind the one before: {offsets:?}");
        assert!(!batch.is_typed());
        write_again(&batch);
    }
    if let Ok(payloads) = batch.payloads() {
        assert_eq!(payloads.count(), count, "as many values as it says");
    }
    if let Ok(columns) = batch.to_record_batch(base, end) {
        assert_eq!(columns.num_rows(), count, "as many rows as it says");
    }
}

/// What was read is written as a batch of our own, and read again equal.
fn write_again(batch: &Batch) {
    let Ok(records) = batch.records() else { return };
    let mut builder = RecordsBuilder::new();
    let mut values = Vec::new();
    for record in records {
        if builder.push(record.value, record.key, None, &[]).is_err() {
            return;
        }
        values.push((record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)));
    }
    let mut out = BytesMut::new();
    if builder.finish(&EncodeOptions::default(), &mut out).is_err() || values.is_empty() {
        return;
    }
    let again = Batch::decode(out.freeze(), None).expect("what we write can be read");
    let again: Vec<_> = again
        .records()
        .expect("records")
        .map(|record| (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)))
        .collect();
    assert_eq!(again, values, "what we write is what was read");
}
