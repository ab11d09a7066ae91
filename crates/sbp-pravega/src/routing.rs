//! Which segment of a stream events with a key belong to.

/// What the hash begins with.
const SEED: u64 = 1_741_865_571;
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
/// Bits of the position.
const BITS: u32 = 52;

/// Where a routing key lies between 0 and 1: an event belongs to the segment whose range has its key's position.
#[must_use]
pub fn key_position(key: &str) -> f64 {
    let bytes: Vec<u8> = key.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fraction(hash(&bytes))
}

/// The upper bits of a hash as a number from 0 to below 1. All of them fit into a double.
fn fraction(hash: u64) -> f64 {
    let bits = hash >> (u64::BITS - BITS);
    // A double between 1 and 2 has the bits as its mantissa.
    f64::from_bits(1.0_f64.to_bits() | bits) - 1.0
}

/// The first half of Murmur3's hash of 128 bits for machines of 64.
fn hash(bytes: &[u8]) -> u64 {
    let (mut h1, mut h2) = (SEED, SEED);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = halves(*block);
        h1 ^= first(k1);
        h1 = h1
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 ^= second(k2);
        h2 = h2
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    let mut last = [0; 16];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    let (k1, k2) = halves(last);
    h2 ^= second(k2);
    h1 ^= first(k1);
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    mix(h1).wrapping_add(mix(h2))
}

fn halves(block: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(block);
    let low = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
    (low(whole), low(whole >> 64))
}

fn first(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn second(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn mix(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_real_clients_have_written_them() {
        for (key, position) in [
            ("k1", 0.436_305_947_079_397_74),
            ("k2", 0.796_284_136_494_039),
            ("", 0.241_178_427_916_235_23),
            ("hello", 0.658_716_230_571_337),
            ("Ärger", 0.578_663_072_993_081_3),
            ("日本", 0.349_244_429_748_559_74),
            ("😀", 0.775_025_591_217_116_4),
        ] {
            assert_eq!(key_position(key), position, "{key}");
        }
    }

    #[test]
    fn positions_are_between_0_and_1_in_every_length() {
        for length in 0..100 {
            let position = key_position(&"k".repeat(length));
            assert!((0.0..1.0).contains(&position), "{length}: {position}");
        }
        assert_eq!(fraction(0), 0.0);
        assert!(fraction(u64::MAX) < 1.0);
    }
}
