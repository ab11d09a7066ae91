//! The flag byte of a frame.

use std::ops::BitOr;

/// The *Flags* byte. Unknown bits are ignored when read and never written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// A request: no flag.
    pub const NONE: Self = Self(0);
    /// The frame answers a request.
    pub const RESPONSE: Self = Self(0x01);
    /// The frame is the last one of its answer.
    pub const END: Self = Self(0x02);
    /// The header is a `SystemErrorResponse`: the request was not understood or not started.
    pub const SYSTEM_ERROR: Self = Self(0x04);

    /// The flags in a received byte, without unknown bits.
    pub const fn from_bits_truncate(bits: u8) -> Self {
        Self(bits & 0x07)
    }

    /// The byte as written on the wire.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the frame answers a request.
    pub const fn is_response(self) -> bool {
        self.contains(Self::RESPONSE)
    }

    /// Whether the answer ends with this frame. A system error ends it even where the sender forgot the END flag.
    pub const fn ends_answer(self) -> bool {
        self.contains(Self::END) || self.contains(Self::SYSTEM_ERROR)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_dropped() {
        let flags = Flags::from_bits_truncate(0xfb);
        assert_eq!(flags, Flags::RESPONSE | Flags::END);
        assert_eq!(flags.bits(), 0x03);
    }

    #[test]
    fn a_system_error_ends_an_answer() {
        assert!((Flags::RESPONSE | Flags::SYSTEM_ERROR).ends_answer());
        assert!(!Flags::RESPONSE.ends_answer());
    }
}
