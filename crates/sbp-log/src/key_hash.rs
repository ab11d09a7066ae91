//! A cheap hash for ranges and streams. Servers choose these keys, so clients cannot cause collisions.

use std::hash::{BuildHasher, Hasher};

/// Builds [`KeyHasher`]s.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuildKeyHasher;

/// Multiplies and folds; two rounds for the two numbers of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHasher(u64);

impl BuildHasher for BuildKeyHasher {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(0x243f_6a88_85a3_08d3)
    }
}

impl KeyHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.mix(u64::from(byte));
        }
    }

    fn write_i32(&mut self, value: i32) {
        self.mix(u64::from(value.cast_unsigned()));
    }

    fn write_i64(&mut self, value: i64) {
        self.mix(value.cast_unsigned());
    }
}
