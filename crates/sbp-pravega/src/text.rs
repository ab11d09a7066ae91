//! Java's modified UTF-8: U+0000 takes two bytes, and what is beyond U+FFFF two times three.

use crate::fault::Fault;

/// The bytes of a text.
pub(crate) fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        let [high, low] = unit.to_be_bytes();
        let last = 0x80 | low & 0x3f;
        match unit {
            1..=0x7f => bytes.push(low),
            0 | 0x80..=0x7ff => bytes.extend([0xc0 | high << 2 | low >> 6, last]),
            0x800.. => bytes.extend([0xe0 | high >> 4, 0x80 | (high & 0x0f) << 2 | low >> 6, last]),
        }
    }
    bytes
}

/// The text of bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, Fault> {
    // Names are ASCII nearly always.
    if bytes.is_ascii() {
        return String::from_utf8(bytes.to_vec()).map_err(|_| Fault::Text);
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut left = bytes;
    while let Some((first, tail)) = left.split_first() {
        let first_bits = u16::from(*first);
        let (unit, tail) = match first {
            0x00..=0x7f => (first_bits, tail),
            0xc0..=0xdf => {
                let (second, tail) = continuation(tail)?;
                ((first_bits & 0x1f) << 6 | second, tail)
            }
            0xe0..=0xef => {
                let (second, tail) = continuation(tail)?;
                let (third, tail) = continuation(tail)?;
                ((first_bits & 0x0f) << 12 | second << 6 | third, tail)
            }
            _ => return Err(Fault::Text),
        };
        units.push(unit);
        left = tail;
    }
    String::from_utf16(&units).map_err(|_| Fault::Text)
}

fn continuation(bytes: &[u8]) -> Result<(u16, &[u8]), Fault> {
    match bytes.split_first() {
        Some((byte, tail)) if byte & 0xc0 == 0x80 => Ok((u16::from(byte & 0x3f), tail)),
        _ => Err(Fault::Text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_what_java_writes() {
        for (text, bytes) in [
            ("", &[][..]),
            ("az/.#", b"az/.#"),
            ("\0", &[0xc0, 0x80]),
            ("a\0b", &[b'a', 0xc0, 0x80, b'b']),
            ("\u{7f}\u{80}\u{7ff}", &[0x7f, 0xc2, 0x80, 0xdf, 0xbf]),
            ("Ä日", &[0xc3, 0x84, 0xe6, 0x97, 0xa5]),
            ("😀", &[0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]),
        ] {
            assert_eq!(encode(text), bytes, "{text:?}");
            assert_eq!(decode(bytes), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for bytes in [
            &[0x80][..],
            &[0xc3],
            &[0xc3, 0x41],
            &[0xe6, 0x97],
            &[0xf0, 0x9f, 0x98, 0x80],
            &[0xff],
            // Half of a pair.
            &[0xed, 0xa0, 0xbd],
        ] {
            assert_eq!(decode(bytes), Err(Fault::Text), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in any::<String>()) {
            prop_assert_eq!(decode(&encode(&text)), Ok(text));
        }
    }
}
