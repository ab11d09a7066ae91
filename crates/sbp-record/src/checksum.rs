//! CRC-32C of stored bodies.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// CRC-32C (Castagnoli) of contiguous bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// CRC-32C of bytes that are in several pieces.
pub fn crc32c_of<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let (Some(first), second) = (pieces.next(), pieces.next()) else {
        return crc32c(&[]);
    };
    let Some(second) = second else { return crc32c(first) };
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    pieces.for_each(|piece| digest.update(piece));
    // The library computes every width in 64 bits; the upper half of a 32-bit checksum is zero.
    u32::try_from(digest.finalize()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_of};

    #[test]
    fn check_value_of_the_algorithm() {
        // The catalogue's check value for CRC-32/ISCSI.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for cut in [0, 1, 15, 16, 17, 999, 1_000] {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(crc32c_of([left, right].into_iter()), crc32c(&bytes));
        }
    }
}
