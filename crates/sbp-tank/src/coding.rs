//! Numbers and texts as bytes.

use bytes::{BufMut, Bytes, BytesMut};
use sbp_wire::WriteQueue;

pub(crate) use sbp_wire::Collector;

use crate::fault::Fault;
use crate::limits::MAX_BUNDLE;

/// Reads from bytes of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let cut = Fault::Cut {
            missing: length.saturating_sub(self.left.len()),
        };
        let (head, tail) = self.left.split_at_checked(length).ok_or(cut)?;
        self.left = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let cut = Fault::Cut {
            missing: N.saturating_sub(self.left.len()),
        };
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or(cut)?;
        self.left = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Result<u32, Fault> {
        let (value, tail) = varint(self.left)?.ok_or(Fault::Cut { missing: 1 })?;
        self.left = tail;
        Ok(value)
    }

    /// A length as a number of variable length, and so many bytes.
    pub(crate) fn framed(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.varint()?;
        self.bytes(widen(length))
    }

    /// A length as one byte, and so many bytes.
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }

    /// A name behind its length.
    pub(crate) fn name(&mut self) -> Result<String, Fault> {
        let name = std::str::from_utf8(self.short()?).map_err(|_| Fault::Name)?;
        Ok(name.to_owned())
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(Fault::LeftOver(left)),
        }
    }
}

/// The number of variable length that `bytes` begin with, and what follows it; `None` while it is incomplete.
fn varint(bytes: &[u8]) -> Result<Option<(u32, &[u8])>, Fault> {
    let mut value = 0;
    let mut left = bytes;
    for shift in [0, 7, 14, 21, 28] {
        let Some((byte, tail)) = left.split_first() else {
            return Ok(None);
        };
        left = tail;
        let group = u32::from(byte & 0x7f);
        if shift == 28 && group > 0x0f {
            return Err(Fault::Varint);
        }
        value |= group << shift;
        if byte & 0x80 == 0 {
            return Ok(Some((value, left)));
        }
    }
    Err(Fault::Varint)
}

/// What begins with its own length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framed {
    /// Bytes of the length.
    pub(crate) head: usize,
    /// Bytes behind it.
    pub(crate) length: usize,
}

impl Framed {
    /// Reads the length that stands before a bundle; `None` while it is incomplete.
    pub(crate) fn of(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let Some((length, tail)) = varint(bytes)? else {
            return Ok(None);
        };
        let length = widen(length);
        check_length("a bundle", length, MAX_BUNDLE)?;
        Ok(Some(Self {
            head: bytes.len() - tail.len(),
            length,
        }))
    }

    pub(crate) fn whole(self) -> usize {
        self.head + self.length
    }
}

/// Takes the first bundle out of bytes that are one bundle after the other, each behind its length: a chunk of an answer, or a
/// file of a broker. `None`, with nothing taken, while it is incomplete.
///
/// # Errors
/// The length cannot be one.
pub fn take_framed(bytes: &mut Bytes) -> Result<Option<Bytes>, Fault> {
    match Framed::of(bytes)? {
        Some(framed) if framed.whole() <= bytes.len() => {
            let mut whole = bytes.split_to(framed.whole());
            Ok(Some(whole.split_off(framed.head)))
        }
        _ => Ok(None),
    }
}

/// A bundle behind its length, as it stands in chunks and files.
#[must_use]
pub fn frame_bundle(bundle: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(bundle.len().saturating_add(LONGEST_VARINT));
    framed.put_varint(narrow(bundle.len()));
    framed.put_slice(bundle);
    framed.freeze()
}

/// Bytes of a number of variable length at most.
const LONGEST_VARINT: usize = 5;

/// A length within its limit.
pub(crate) fn check_length(what: &'static str, length: usize, limit: usize) -> Result<(), Fault> {
    if length <= limit {
        return Ok(());
    }
    let wide = |length| u64::try_from(length).unwrap_or(u64::MAX);
    Err(Fault::TooLong {
        what,
        length: wide(length),
        limit: wide(limit),
    })
}

/// A number of 32 bits as a length.
pub(crate) fn widen(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// What is left of a number that was checked before: the protocol has no room for a larger one.
pub(crate) fn narrow<T: TryFrom<usize> + Bounded>(length: usize) -> T {
    T::try_from(length).unwrap_or(T::LARGEST)
}

/// A type with a largest number.
pub(crate) trait Bounded {
    const LARGEST: Self;
}

impl Bounded for u8 {
    const LARGEST: Self = Self::MAX;
}

impl Bounded for u16 {
    const LARGEST: Self = Self::MAX;
}

impl Bounded for u32 {
    const LARGEST: Self = Self::MAX;
}

/// Writing, in the forms of the protocol.
pub(crate) trait Put: BufMut {
    fn put_varint(&mut self, mut value: u32) {
        while value > 0x7f {
            let [low, ..] = value.to_le_bytes();
            self.put_u8(low | 0x80);
            value >>= 7;
        }
        let [low, ..] = value.to_le_bytes();
        self.put_u8(low);
    }

    /// Text behind its length in one byte. Longer text is cut; whoever cares has checked before.
    fn put_short(&mut self, text: &[u8]) {
        let text = text.get(..text.len().min(255)).unwrap_or_default();
        self.put_u8(narrow(text.len()));
        self.put_slice(text);
    }
}

impl<T: BufMut> Put for T {}

/// Queues what was collected as a frame.
pub(crate) fn queue_frame(id: u8, frame: Collector, queue: &mut WriteQueue) {
    let [a, b, c, d] = narrow::<u32>(frame.length()).to_le_bytes();
    frame.queue(&[id, a, b, c, d], queue);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_have_32_bits() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut written = Vec::new();
            written.put_varint(value);
            assert_eq!(written, bytes);
            assert_eq!(varint(bytes), Ok(Some((value, &[][..]))));
            for cut in 0..bytes.len() {
                assert_eq!(varint(&bytes[..cut]), Ok(None), "{value} cut at {cut}");
            }
        }
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(Fault::Varint));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0]), Err(Fault::Varint));
        // More bytes than needed are no fault.
        assert_eq!(varint(&[0x81, 0x80, 0]), Ok(Some((1, &[][..]))));
    }

    #[test]
    fn what_is_framed_is_taken_when_it_is_whole() {
        for length in [0, 1, 127, 128, 70_000] {
            let bundle = vec![7; length];
            let mut framed = frame_bundle(&bundle);
            assert_eq!(take_framed(&mut framed), Ok(Some(bundle.into())));
            assert!(framed.is_empty());
        }
        let mut bytes = Bytes::from_static(b"\x02ab\x00\x03cd");
        assert_eq!(take_framed(&mut bytes), Ok(Some(Bytes::from_static(b"ab"))));
        assert_eq!(take_framed(&mut bytes), Ok(Some(Bytes::new())));
        assert_eq!(take_framed(&mut bytes), Ok(None));
        assert_eq!(&bytes[..], b"\x03cd");
        let mut huge = Bytes::from_static(b"\xff\xff\xff\xff\x0f");
        assert!(matches!(take_framed(&mut huge), Err(Fault::TooLong { .. })));
    }
}
