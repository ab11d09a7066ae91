//! Compression of bodies: LZ4 blocks and, with the feature `zstd`, Zstandard frames.

use std::borrow::Cow;

use arrow_buffer::MutableBuffer;

use crate::error::{BatchError, EncodeError};
use crate::meta::Compression;

/// The largest body a reader decompresses.
pub const MAX_UNCOMPRESSED_LENGTH: usize = 64 * 1024 * 1024;
/// The most records of a batch: with a value, or an offset of one, each takes four bytes of at most 64 MiB.
pub(crate) const MAX_RECORDS: usize = MAX_UNCOMPRESSED_LENGTH / 4;

/// A good ratio in little time; higher levels gain little on records of a few hundred bytes.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;

/// LZ4 cannot compress bytes to less than a 255th. A larger claimed length is refused before memory is allocated for
/// it.
const LZ4_MAX_RATIO: usize = 255;

/// Compresses a body, and returns it with the compression used. A body that does not get smaller is stored
/// uncompressed.
pub(crate) fn compress(body: &[u8], wanted: Compression) -> Result<(Cow<'_, [u8]>, Compression), EncodeError> {
    let packed = match wanted {
        Compression::NONE => return Ok((Cow::Borrowed(body), Compression::NONE)),
        Compression::LZ4 => lz4_flex::block::compress(body),
        Compression::ZSTD => zstd_compress(body)?,
        other => {
            return Err(EncodeError::Compression(format!(
                "{other} is unknown; use none, lz4 or zstd"
            )));
        }
    };
    if packed.len() < body.len() {
        Ok((Cow::Owned(packed), wanted))
    } else {
        Ok((Cow::Borrowed(body), Compression::NONE))
    }
}

/// Decompresses a stored body into aligned memory of exactly `length` bytes.
pub(crate) fn decompress(stored: &[u8], compression: Compression, length: usize) -> Result<MutableBuffer, BatchError> {
    if length > MAX_UNCOMPRESSED_LENGTH || (stored.is_empty() && length > 0) {
        return Err(impossible(length));
    }
    let written = match compression {
        Compression::LZ4 if length / LZ4_MAX_RATIO > stored.len() => return Err(impossible(length)),
        Compression::LZ4 => {
            let mut out = MutableBuffer::from_len_zeroed(length);
            let written = lz4_flex::block::decompress_into(stored, out.as_slice_mut())
                .map_err(|error| BatchError::Decompress(Box::new(error)))?;
            (out, written)
        }
        Compression::ZSTD => zstd_decompress(stored, length)?,
        Compression(value) => {
            return Err(BatchError::Unsupported {
                what: "compression",
                value,
            });
        }
    };
    match written {
        (out, written) if written == length => Ok(out),
        (_, written) => Err(BatchError::body(format!(
            "it decompresses to {written} bytes, the head says {length}"
        ))),
    }
}

fn impossible(length: usize) -> BatchError {
    BatchError::value("uncompressed length", i64::try_from(length).unwrap_or(i64::MAX))
}

#[cfg(feature = "zstd")]
fn zstd_compress(body: &[u8]) -> Result<Vec<u8>, EncodeError> {
    zstd::bulk::compress(body, ZSTD_LEVEL).map_err(|error| EncodeError::Compression(format!("zstd failed: {error}")))
}

#[cfg(not(feature = "zstd"))]
fn zstd_compress(_body: &[u8]) -> Result<Vec<u8>, EncodeError> {
    Err(EncodeError::Compression(
        "zstd is not part of this build; use lz4".to_owned(),
    ))
}

#[cfg(feature = "zstd")]
fn zstd_decompress(stored: &[u8], length: usize) -> Result<(MutableBuffer, usize), BatchError> {
    let mut out = MutableBuffer::from_len_zeroed(length);
    let written = zstd::bulk::decompress_to_buffer(stored, out.as_slice_mut())
        .map_err(|error| BatchError::Decompress(Box::new(error)))?;
    Ok((out, written))
}

#[cfg(not(feature = "zstd"))]
fn zstd_decompress(_stored: &[u8], _length: usize) -> Result<(MutableBuffer, usize), BatchError> {
    Err(BatchError::Unsupported {
        what: "compression",
        value: Compression::ZSTD.0,
    })
}
