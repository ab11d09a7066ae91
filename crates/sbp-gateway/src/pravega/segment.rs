//! A segment's bytes as records.
//!
//! An append is cut into events for as long as it reads as events, and each is a record with the event's content. Other bytes are
//! one record with the header `pravega.raw`. The first record of each batch says in the header `pravega.at` where in the segment
//! the batch begins. So the bytes come back as they were, and readers of the stream see events. Batches without that header are of
//! others; no byte of the segment is in them.

use bytes::{BufMut, Bytes, BytesMut};
use sbp_client::ClientError;
use sbp_pravega::{EVENT_HEAD, WholeEvents};
use sbp_record::{Batch, EncodeError, Record, RecordsBuilder};
use sbp_types::Offset;

use crate::records::damaged;

/// The header of a batch's first record: the offset in the segment at which the batch begins, 8 bytes, big-endian.
pub(crate) const AT: &str = "pravega.at";
/// The header of a record that is no event: its value is the bytes.
const RAW: &str = "pravega.raw";

/// Adds the bytes of an append to the records of a batch that begins at this offset of the segment.
///
/// # Errors
/// They do not fit into a batch.
pub(super) fn push_bytes(records: &mut RecordsBuilder, data: &Bytes, at: i64) -> Result<(), EncodeError> {
    let place = at.to_be_bytes();
    let mut events = WholeEvents::new(data);
    while let Ok(Some(content)) = events.next_event() {
        let headers = [(AT, Some(&place[..]))];
        records.push(
            Some(content),
            None,
            None,
            if records.is_empty() { &headers } else { &[] },
        )?;
    }
    let rest = events.rest();
    // What is empty is stored too: that its writer has written it has to be known.
    if !rest.is_empty() || data.is_empty() {
        let headers = [(RAW, None), (AT, Some(&place[..]))];
        let headers = if records.is_empty() {
            &headers[..]
        } else {
            &headers[..1]
        };
        records.push(Some(rest), None, None, headers)?;
    }
    Ok(())
}

/// Where a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// The offset that the stream's next record gets.
    pub(crate) next: Offset,
    /// The segment's length.
    pub(crate) length: i64,
}

/// Where a batch is in the segment, and in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset in the segment of its first byte.
    pub(super) at: i64,
    /// How many bytes it has.
    pub(super) length: i64,
    /// Its first record.
    pub(super) base: Offset,
    /// The record behind its last.
    pub(super) next: Offset,
}

impl Place {
    /// Where a batch is; `None`: it is of others.
    pub(crate) fn of(batch: &Batch) -> Result<Option<Self>, ClientError> {
        let first = records(batch)?.next();
        let at = first.and_then(|first| header(&first, AT)??.try_into().ok());
        let Some(at) = at else {
            return Ok(None);
        };
        let length = match batch.values() {
            Some(values) => {
                let events = values.len().saturating_sub(raw_rows(batch).len());
                wide(values.byte_length().saturating_add(events.saturating_mul(EVENT_HEAD)))
            }
            None => records(batch)?.map(|record| bytes_of(&record)).sum(),
        };
        Ok(Some(Self {
            at: i64::from_be_bytes(at),
            length,
            base: batch.base_offset(),
            next: batch.end_offset(),
        }))
    }

    /// The offset behind its last byte.
    pub(crate) fn end(&self) -> i64 {
        self.at.saturating_add(self.length)
    }
}

/// Appends the bytes of the batch to `out`.
pub(super) fn put_bytes(batch: &Batch, out: &mut BytesMut) -> Result<(), ClientError> {
    let mut raw = raw_rows(batch).into_iter().peekable();
    let mut put = |row: usize, value: &[u8]| {
        if raw.next_if_eq(&row).is_none() {
            let length = i32::try_from(value.len());
            let length = length.map_err(|_| damaged("an event of more than 2 GiB".to_owned()))?;
            // Its head: a type, which is 0, and the length, of 4 bytes each.
            out.put_i64(i64::from(length));
        }
        out.put_slice(value);
        Ok(())
    };
    match batch.values() {
        Some(values) => values.iter().enumerate().try_for_each(|(row, value)| put(row, value)),
        None => {
            let values = records(batch)?.map(|record| record.value.unwrap_or_default());
            values.enumerate().try_for_each(|(row, value)| put(row, value))
        }
    }
}

/// The rows of records that are no events.
fn raw_rows(batch: &Batch) -> Vec<usize> {
    let raw = batch.headers().filter(|(_, name, _)| *name == RAW);
    let mut rows: Vec<usize> = raw.map(|(row, ..)| row).collect();
    // A record may have such a header twice.
    rows.dedup();
    rows
}

/// The offset in the segment of the first byte of the record at `from`, or of the batch's first record behind it.
pub(super) fn begin_of(batch: &Batch, place: &Place, from: Offset) -> Result<i64, ClientError> {
    let before = records(batch)?.take_while(|record| record.offset < from);
    Ok(before.fold(place.at, |at, record| at.saturating_add(bytes_of(&record))))
}

/// The record that has the byte at this offset of the segment, which is in the batch.
pub(super) fn record_of(batch: &Batch, place: &Place, offset: i64) -> Result<Offset, ClientError> {
    let mut end = place.at;
    for record in records(batch)? {
        end = end.saturating_add(bytes_of(&record));
        if offset < end {
            return Ok(record.offset);
        }
    }
    Ok(place.next)
}

fn records(batch: &Batch) -> Result<impl Iterator<Item = Record<'_>>, ClientError> {
    batch.records().map_err(|error| damaged(error.to_string()))
}

/// How many bytes of the segment a record is.
fn bytes_of(record: &Record<'_>) -> i64 {
    let head = if header(record, RAW).is_some() { 0 } else { EVENT_HEAD };
    wide(record.value.map_or(0, <[u8]>::len) + head)
}

fn wide(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn header<'a>(record: &Record<'a>, name: &str) -> Option<Option<&'a [u8]>> {
    let mut headers = record.headers.clone();
    headers.find_map(|(of, value)| (of == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sbp_pravega::put_event;
    use sbp_record::EncodeOptions;

    use super::*;

    fn batch(appends: &[Bytes], at: i64) -> Batch {
        let mut records = RecordsBuilder::new();
        let mut end = at;
        for data in appends {
            push_bytes(&mut records, data, end).expect("it fits");
            end += data.len() as i64;
        }
        let mut bytes = BytesMut::new();
        records.finish(&EncodeOptions::default(), &mut bytes).expect("a batch");
        Batch::decode(bytes.freeze(), None).expect("a batch")
    }

    fn values(batch: &Batch) -> Vec<Vec<u8>> {
        let records = records(batch).expect("records");
        records
            .map(|record| record.value.unwrap_or_default().to_vec())
            .collect()
    }

    #[test]
    fn events_are_records_and_other_bytes_are_one() {
        let mut data = BytesMut::new();
        put_event(&mut data, b"one").expect("an event");
        put_event(&mut data, b"").expect("an event");
        data.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9, b'x']);
        let batch = batch(&[data.clone().freeze(), Bytes::from_static(b"raw"), Bytes::new()], 70);
        assert_eq!(
            values(&batch),
            [&b"one"[..], b"", &[0, 0, 0, 0, 0, 0, 0, 9, b'x'], b"raw", b""]
        );
        let place = Place::of(&batch).expect("records").expect("a place");
        assert_eq!((place.at, place.end()), (70, 70 + 28 + 3));
        let mut bytes = BytesMut::new();
        put_bytes(&batch, &mut bytes).expect("records");
        data.extend_from_slice(b"raw");
        assert_eq!(bytes, data);
        for (offset, record) in [
            (70, 0),
            (80, 0),
            (81, 1),
            (88, 1),
            (89, 2),
            (97, 2),
            (98, 3),
            (100, 3),
            (101, 5),
        ] {
            assert_eq!(
                record_of(&batch, &place, offset).expect("a record"),
                Offset(record),
                "{offset}"
            );
        }
        for (from, begin) in [(0, 70), (1, 81), (2, 89), (3, 98), (4, 101)] {
            assert_eq!(begin_of(&batch, &place, Offset(from)).expect("a place"), begin);
        }
    }

    #[test]
    fn batches_of_others_are_none_of_the_segment() {
        let mut records = RecordsBuilder::new();
        records
            .push(Some(b"x"), None, None, &[("pravega.at", Some(b"short"))])
            .expect("it fits");
        let mut bytes = BytesMut::new();
        records.finish(&EncodeOptions::default(), &mut bytes).expect("a batch");
        let batch = Batch::decode(bytes.freeze(), None).expect("a batch");
        assert_eq!(Place::of(&batch).expect("records"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(
            appends in vec(vec(prop_oneof![Just(0_u8), any::<u8>()], 0..40), 1..8),
            events in vec(vec(any::<u8>(), 0..20), 0..4),
            at in 0_i64..1 << 40,
        ) {
            let mut begin = BytesMut::new();
            for event in &events {
                put_event(&mut begin, event).expect("an event");
            }
            let mut all = vec![begin.freeze()];
            all.extend(appends.into_iter().map(Bytes::from));
            let batch = batch(&all, at);
            let mut bytes = BytesMut::new();
            put_bytes(&batch, &mut bytes).expect("records");
            prop_assert_eq!(&bytes[..], &all.concat()[..]);
            let place = Place::of(&batch).expect("records").expect("a place");
            prop_assert_eq!((place.at, place.length), (at, bytes.len() as i64));
        }
    }
}
