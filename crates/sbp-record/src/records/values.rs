//! Encodes records that have only a value, without collecting them first.

use arrow_buffer::ToByteSlice;
use bytes::BytesMut;

use super::builder::{Pieces, put, write_records};
use super::column::to_offset;
use super::layout::Slot;
use crate::encode::EncodeOptions;
use crate::error::EncodeError;
use crate::meta::BodyEncoding;

/// Appends to `out` a batch of records that have only a value each; returns its length in bytes, padding included. The
/// bytes are those that a [`RecordsBuilder`](crate::RecordsBuilder) writes, and are copied once.
///
/// # Errors
/// There are no records, or the batch would be too large for a server.
pub fn encode_values(options: &EncodeOptions, values: &[&[u8]], out: &mut BytesMut) -> Result<usize, EncodeError> {
    if values.is_empty() {
        return Err(EncodeError::NoRecords);
    }
    let meta = options.meta(BodyEncoding::RECORDS, values.len())?;
    let mut offsets = Vec::with_capacity(values.len() + 1);
    let mut end = 0_usize;
    offsets.push(0);
    for value in values {
        end = end.saturating_add(value.len());
        offsets.push(to_offset(end));
    }
    let offsets = [offsets.to_byte_slice()];
    let mut pieces = Pieces::default();
    put(&mut pieces, Slot::ValueOffsets, &offsets);
    put(&mut pieces, Slot::ValueData, values);
    write_records(meta, options.compression, values.len(), &pieces, out)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::encode_values;
    use crate::{Compression, EncodeError, EncodeOptions, RecordsBuilder};

    #[test]
    fn the_bytes_are_those_of_the_builder() {
        let long = vec![7; 5_000];
        let cases: [&[&[u8]]; 6] = [
            &[b"a"],
            &[b""],
            &[b"", b"", b""],
            &[b"one", b"", b"three"],
            &[&long, b"x", &long],
            &[&b"1234567890123456"[..]; 3],
        ];
        for values in cases {
            for compression in [Compression::NONE, Compression::LZ4] {
                let options = EncodeOptions {
                    compression,
                    ..EncodeOptions::default()
                };
                let mut builder = RecordsBuilder::new();
                for &value in values {
                    builder.push(Some(value), None, None, &[]).unwrap();
                }
                let (mut collected, mut direct) = (BytesMut::new(), BytesMut::from(&b"before"[..]));
                let length = builder.finish(&options, &mut collected).unwrap();
                assert_eq!(encode_values(&options, values, &mut direct).unwrap(), length);
                assert_eq!(direct[6..], collected[..]);
            }
        }
    }

    #[test]
    fn none_and_too_many() {
        let mut out = BytesMut::new();
        let options = EncodeOptions::default();
        assert!(matches!(
            encode_values(&options, &[], &mut out),
            Err(EncodeError::NoRecords)
        ));
        let large = vec![0; 1 << 20];
        let values = vec![&large[..]; 64];
        let refused = encode_values(&options, &values, &mut out);
        assert!(matches!(refused, Err(EncodeError::TooLarge { .. })));
        assert!(out.is_empty());
    }
}
