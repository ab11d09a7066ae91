//! The payload's checksum: CRC-32 with the IEEE polynomial.

/// A checksum that is computed piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// The checksum of no bytes.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next piece.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Adds pieces whose checksum was computed separately, as the next ones.
    #[inline]
    pub fn append(&mut self, next: &Self) {
        self.0.combine(&next.0);
    }

    /// The checksum of all pieces; 0 if there were none.
    #[inline]
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// The checksum of a contiguous payload; 0 for an empty one.
#[inline]
pub fn checksum(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_ieee_polynomial() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn pieces_sum_to_the_whole() {
        let mut sum = Checksum::new();
        sum.update(b"1234");
        sum.update(b"");
        sum.update(b"56");
        let mut next = Checksum::new();
        next.update(b"789");
        sum.append(&Checksum::new());
        sum.append(&next);
        assert_eq!(sum.finish(), checksum(b"123456789"));
    }
}
