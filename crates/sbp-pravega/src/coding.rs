//! Numbers and texts as bytes.

use bytes::{BufMut, BytesMut};

use crate::fault::Fault;
use crate::limits::{MAX_FRAME, MAX_SEGMENT_NAME};
use crate::text;

/// Who appends: a number of 128 bits that each writer makes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u128);

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

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
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

    pub(crate) fn i8(&mut self) -> Result<i8, Fault> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Fault> {
        self.i8().map(|byte| byte != 0)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn id(&mut self) -> Result<WriterId, Fault> {
        self.array().map(u128::from_be_bytes).map(WriterId)
    }

    /// A number that peers of older versions leave out.
    pub(crate) fn trailing_i64(&mut self) -> Option<i64> {
        self.i64().ok()
    }

    /// A number that peers of older versions leave out.
    pub(crate) fn trailing_i32(&mut self) -> Option<i32> {
        self.i32().ok()
    }

    /// The id of a request; -1 where it is left out.
    pub(crate) fn trailing_request_id(&mut self) -> i64 {
        self.trailing_i64().unwrap_or(NO_REQUEST)
    }

    pub(crate) fn text(&mut self) -> Result<String, Fault> {
        let length = self.array().map(u16::from_be_bytes)?;
        text::decode(self.bytes(usize::from(length))?)
    }

    /// A text that is not looked at, and that peers may leave out.
    pub(crate) fn skip_text(&mut self) -> Result<(), Fault> {
        if self.left.is_empty() {
            return Ok(());
        }
        let length = self.array().map(u16::from_be_bytes)?;
        self.bytes(usize::from(length)).map(|_| ())
    }

    /// A length that is not below zero.
    #[inline]
    pub(crate) fn length(&mut self, what: &'static str) -> Result<usize, Fault> {
        let value = self.i32()?;
        usize::try_from(value).map_err(|_| Fault::Negative {
            what,
            value: i64::from(value),
        })
    }

    /// A length, and so many bytes.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.length("a length")?;
        self.bytes(length)
    }

    /// The length of a list whose items have so many bytes at least.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Fault> {
        let count = self.i32()?;
        let possible = self.left.len() / least.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= possible => Ok(count),
            _ => Err(Fault::Count {
                count: i64::from(count),
                length: self.left.len(),
            }),
        }
    }

    /// Data behind their length, where that leaves as many bytes as one of these; `None`, with nothing taken, where it does not.
    pub(crate) fn sized_before(&mut self, tails: [usize; 2]) -> Option<&'a [u8]> {
        let mut sized = self.clone();
        let data = sized.sized().ok()?;
        if !tails.contains(&sized.left()) {
            return None;
        }
        *self = sized;
        Some(data)
    }

    /// Data up to so many bytes before the end.
    pub(crate) fn up_to(&mut self, tail: usize) -> Result<&'a [u8], Fault> {
        let cut = Fault::Cut {
            missing: tail.saturating_sub(self.left.len()),
        };
        let length = self.left.len().checked_sub(tail).ok_or(cut)?;
        self.bytes(length)
    }
}

/// Stands for the id of a request where there is none.
pub(crate) const NO_REQUEST: i64 = -1;

/// A length within its limit.
#[inline]
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

/// Writing, in the forms of the protocol.
pub(crate) trait Put: BufMut {
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    fn put_id(&mut self, id: WriterId) {
        self.put_u128(id.0);
    }

    fn put_text(&mut self, text: &str) -> Result<(), Fault> {
        let bytes = text::encode(text);
        check_length("a name", bytes.len(), MAX_SEGMENT_NAME)?;
        self.put_u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        self.put_slice(&bytes);
        Ok(())
    }

    fn put_length(&mut self, length: usize) -> Result<(), Fault> {
        check_length("it", length, MAX_FRAME)?;
        self.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
        Ok(())
    }

    fn put_sized(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.put_length(bytes.len())?;
        self.put_slice(bytes);
        Ok(())
    }
}

impl Put for BytesMut {}
