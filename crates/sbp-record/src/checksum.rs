//! CRC-32C of stored bodies.

use crc_fast::{CrcAlgorithm, Digest, checksum};

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// CRC-32C (Castagnoli) of contiguous bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(checksum(ALGORITHM, bytes))
}

/// CRC-32C of bytes that come in pieces.
pub(crate) fn crc32c_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(ALGORITHM);
    for piece in pieces {
        digest.update(piece);
    }
    narrow(digest.finalize())
}

/// The library computes every width in 64 bits; a 32-bit checksum has no upper half.
fn narrow(wide: u64) -> u32 {
    u32::try_from(wide & u64::from(u32::MAX)).unwrap_or_default()
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
