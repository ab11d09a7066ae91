//! Compressed frames.

use bytes::{Buf, BufMut, Bytes};
use lz4_flex::block::{compress_into, decompress_into, decompress_into_with_dict, get_maximum_output_size};

use crate::fault::{Fault, check_length, narrow, widen};
use crate::limits::{EXPANSION_SLACK, MAX_WHOLE, MOST_EXPANSION};

/// Bytes of each chunk of [`Codec::Lz4Fragmented`] before it is compressed, the last one excepted.
const CHUNK: usize = 32 * 1024;
/// How far back a chunk may refer to what the ones before it were.
const WINDOW: usize = 64 * 1024;
/// The bit of a chunk's header that says that it is the last one.
const LAST: u32 = 1 << 31;

/// How frames are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// One LZ4 block behind its length when decompressed.
    Lz4,
    /// LZ4 blocks of 32 KiB each, which may refer to those before.
    Lz4Fragmented,
}

impl Codec {
    /// All of them, the best first.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Lz4Fragmented];

    /// The name by which it is negotiated.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4",
            Self::Lz4Fragmented => "LZ4_FRAGMENTED",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Compresses a frame.
    #[must_use]
    pub fn compress(self, frame: &[u8]) -> Vec<u8> {
        match self {
            Self::Lz4 => {
                let mut out = Vec::with_capacity(4 + get_maximum_output_size(frame.len()));
                out.put_u32_le(narrow(frame.len()));
                append_block(frame, &mut out);
                out
            }
            Self::Lz4Fragmented => {
                let mut out = Vec::new();
                let (mut left, mut head) = (frame, frame.split_at_checked(CHUNK));
                while let Some((chunk, tail)) = head.filter(|(_, tail)| !tail.is_empty()) {
                    let place = out.len();
                    out.put_u32_le(0);
                    let length = narrow(append_block(chunk, &mut out));
                    if let Some(header) = out.get_mut(place..place + 4) {
                        header.copy_from_slice(&length.to_le_bytes());
                    }
                    left = tail;
                    head = left.split_at_checked(CHUNK);
                }
                out.put_u32_le(LAST | narrow(left.len()));
                append_block(left, &mut out);
                out
            }
        }
    }

    /// Decompresses a frame. An empty result is no frame: such a one only carries something for the peer's compressor, of
    /// which these codecs have nothing.
    ///
    /// # Errors
    /// [`Fault::Compression`], or [`Fault::TooLong`].
    pub fn decompress(self, compressed: &[u8]) -> Result<Bytes, Fault> {
        match self {
            Self::Lz4 => decompress_whole(compressed),
            Self::Lz4Fragmented => decompress_chunks(compressed),
        }
    }
}

/// Appends a block; its length.
fn append_block(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let place = out.len();
    out.resize(place + get_maximum_output_size(bytes.len()), 0);
    // There is as much room as it can need.
    let room = out.get_mut(place..).unwrap_or_default();
    let length = compress_into(bytes, room).unwrap_or(0);
    out.truncate(place + length);
    length
}

/// Whether a block can become so long, and whether that is allowed.
fn check_raw(raw: usize, block: usize) -> Result<(), Fault> {
    check_length("a decompressed frame", raw, MAX_WHOLE)?;
    match raw <= block.saturating_mul(MOST_EXPANSION).saturating_add(EXPANSION_SLACK) {
        true => Ok(()),
        false => Err(Fault::Compression("it claims to be longer than LZ4 can make it")),
    }
}

/// A block of nothing: no byte, or the one that LZ4 makes of nothing.
fn is_nothing(block: &[u8]) -> Result<(), Fault> {
    match block {
        [] | [0] => Ok(()),
        _ => Err(Fault::Compression("it claims to be empty and is not")),
    }
}

fn damaged() -> Fault {
    Fault::Compression("its LZ4 block is damaged")
}

fn decompress_whole(mut compressed: &[u8]) -> Result<Bytes, Fault> {
    let raw = widen(compressed.try_get_u32_le()?);
    if raw == 0 {
        return is_nothing(compressed).map(|()| Bytes::new());
    }
    check_raw(raw, compressed.len())?;
    let mut frame = vec![0; raw];
    match decompress_into(compressed, &mut frame) {
        Ok(length) if length == raw => Ok(frame.into()),
        _ => Err(damaged()),
    }
}

fn decompress_chunks(mut compressed: &[u8]) -> Result<Bytes, Fault> {
    let mut frame = Vec::new();
    loop {
        let header = compressed.try_get_u32_le()?;
        let is_last = header & LAST != 0;
        let (raw, block) = match is_last {
            true => (widen(header & !LAST), std::mem::take(&mut compressed)),
            false => {
                let length = widen(header);
                let split = compressed.split_at_checked(length).ok_or(Fault::Cut {
                    missing: length.saturating_sub(compressed.len()),
                })?;
                compressed = split.1;
                (CHUNK, split.0)
            }
        };
        if raw == 0 {
            is_nothing(block)?;
            // Behind other chunks an empty last one is none that a compressor makes, and harmless.
            return Ok(frame.into());
        }
        check_raw(raw, block.len())?;
        let before = frame.len();
        check_length("a decompressed frame", before.saturating_add(raw), MAX_WHOLE)?;
        frame.resize(before + raw, 0);
        let (done, room) = frame.split_at_mut_checked(before).ok_or_else(damaged)?;
        let window = done.get(before.saturating_sub(WINDOW)..).unwrap_or_default();
        match decompress_into_with_dict(block, room, window) {
            Ok(length) if length == raw => {}
            _ => return Err(damaged()),
        }
        if is_last {
            return Ok(frame.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|place| b"abcabcdabcde"[place * place % 12]).collect()
    }

    #[test]
    fn frames_of_every_length_come_back() {
        for codec in Codec::ALL {
            for length in [1, 5, 64, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 1 << 20] {
                let frame = text(length);
                let compressed = codec.compress(&frame);
                assert!(compressed.len() < frame.len() + 64);
                assert_eq!(codec.decompress(&compressed).unwrap(), frame, "{codec:?} {length}");
            }
        }
    }

    #[test]
    fn chunks_refer_to_those_before_them() {
        // A second chunk that is nothing but the first one again, as compressors write it that keep their window.
        let chunk = text(CHUNK);
        let first = lz4_flex::block::compress(&chunk);
        let second = lz4_flex::block::compress_with_dict(&chunk[..1_000], &chunk);
        assert!(second.len() < 100, "it refers to what was before");
        let mut compressed = Vec::new();
        compressed.put_u32_le(narrow(first.len()));
        compressed.extend_from_slice(&first);
        compressed.put_u32_le(LAST | 1_000);
        compressed.extend_from_slice(&second);
        let frame = Codec::Lz4Fragmented.decompress(&compressed).unwrap();
        assert_eq!(frame, [&chunk[..], &chunk[..1_000]].concat());
    }

    #[test]
    fn nothing_grows_beyond_what_lz4_can_make_of_it() {
        let bomb = |raw: u32, block: &[u8]| [&raw.to_le_bytes()[..], block].concat();
        for (codec, last) in [(Codec::Lz4, 0), (Codec::Lz4Fragmented, LAST)] {
            let too_long = codec.decompress(&bomb(last | (65 << 20), &[0; 100]));
            assert!(matches!(too_long, Err(Fault::TooLong { .. })), "{too_long:?}");
            for (raw, block) in [
                (255 * 3 + 65, &[0, 0, 0][..]),
                (5, &[0x50, 1, 2][..]),
                (0, &[0x10, 7][..]),
            ] {
                let refused = codec.decompress(&bomb(last | raw, block));
                assert!(
                    matches!(refused, Err(Fault::Compression(_))),
                    "{codec:?} {raw}: {refused:?}"
                );
            }
            assert!(matches!(codec.decompress(&[1, 2]), Err(Fault::Cut { .. })));
        }
        // A chunk amid others is 32,768 bytes when decompressed, whatever it holds.
        let short = lz4_flex::block::compress(&text(CHUNK - 1));
        let refused = Codec::Lz4Fragmented.decompress(&bomb(narrow(short.len()), &short));
        assert!(matches!(refused, Err(Fault::Compression(_))), "{refused:?}");
        let cut = Codec::Lz4Fragmented.decompress(&bomb(1_000, &[0; 10]));
        assert_eq!(cut, Err(Fault::Cut { missing: 990 }));
    }

    #[test]
    fn frames_for_the_compressor_alone_are_nothing() {
        for codec in Codec::ALL {
            let nothing = codec.compress(&[]);
            assert_eq!(codec.decompress(&nothing).as_deref(), Ok(&[][..]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn any_frame_comes_back(frame in proptest::collection::vec(0..4_u8, 1..70_000)) {
            for codec in Codec::ALL {
                let back = codec.decompress(&codec.compress(&frame));
                prop_assert_eq!(back.as_deref(), Ok(&frame[..]));
            }
        }

        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for codec in Codec::ALL {
                if let Ok(frame) = codec.decompress(&bytes) {
                    prop_assert!(frame.len() <= MOST_EXPANSION * bytes.len() + EXPANSION_SLACK * 2);
                }
            }
        }
    }
}
