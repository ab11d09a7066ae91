//! Bundles: what messages are stored and sent in.
//!
//! ```text
//! flags       1 byte: bits 0-1 codec (1: Snappy), 2-5 the count if it is 1 to 15, 6 sparse
//! count       varint, unless the flags have it
//! first       u64, if sparse; and, if there is more than one message, varint last - first - 1
//! messages    compressed as a whole, each:
//!   flags     1 byte: 1 has a key, 2 has the time of the one before, 4 has the number after the one before
//!   skipped   varint, in sparse bundles, neither first nor last, unless 4: number - number before - 1
//!   time      u64 milliseconds since 1970, unless 2
//!   key       1 byte length and so many, if 1
//!   content   varint length and so many
//! ```

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::coding::{Put, Reader, check_length, narrow, widen};
use crate::fault::Fault;
use crate::limits::{COMPRESS_ABOVE, EXPANSION_SLACK, MAX_BUNDLE, MAX_KEY, MOST_EXPANSION};

const CODEC: u8 = 0x03;
const SNAPPY: u8 = 1;
const COUNT_SHIFT: u8 = 2;
const COUNT_MASK: u8 = 0x0f;
const SPARSE: u8 = 0x40;
const NEVER: u8 = 0x80;

const HAS_KEY: u8 = 1;
const SAME_TIME: u8 = 2;
const NEXT_NUMBER: u8 = 4;

/// The fewest bytes of a message: flags, and the length of nothing.
const SHORTEST_MESSAGE: usize = 2;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its sequence number in its partition.
    pub sequence: u64,
    /// When it was produced, in milliseconds since 1970.
    pub time_ms: u64,
    /// Its key, of at most 255 bytes.
    pub key: Option<&'a [u8]>,
    /// What it says.
    pub content: &'a [u8],
}

/// The sequence numbers of a sparse bundle's first and last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// The last; the same where there is one message.
    pub last: u64,
}

/// What stands in front of a bundle's messages.
#[derive(Debug, Clone, Copy)]
pub struct BundleHead<'a> {
    count: u32,
    span: Option<Span>,
    is_compressed: bool,
    /// The messages.
    stored: &'a [u8],
}

impl<'a> BundleHead<'a> {
    /// Reads a bundle up to its messages, which it does not look at.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Fault> {
        check_length("a bundle", bytes.len(), MAX_BUNDLE)?;
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        let is_known = flags & NEVER == 0 && flags & CODEC <= SNAPPY;
        if !is_known {
            return Err(Fault::BundleFlags(flags));
        }
        let count = match (flags >> COUNT_SHIFT) & COUNT_MASK {
            0 => reader.varint()?,
            count => u32::from(count),
        };
        let span = match flags & SPARSE {
            0 => None,
            _ => Some(read_span(&mut reader, count)?),
        };
        Ok(Self {
            count,
            span,
            is_compressed: flags & CODEC == SNAPPY,
            stored: reader.rest(),
        })
    }

    /// How many messages it says that it has.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The numbers of its first and last message, if it is sparse.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.span
    }
}

/// A received bundle, decompressed.
#[derive(Debug, Clone)]
pub struct Bundle<'a> {
    head: BundleHead<'a>,
    body: Cow<'a, [u8]>,
}

impl<'a> Bundle<'a> {
    /// Reads a bundle up to its messages, and decompresses these.
    ///
    /// # Errors
    /// Why it is none. The messages themselves are judged as they are read.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Fault> {
        let head = BundleHead::decode(bytes)?;
        let body = match head.is_compressed {
            true => Cow::Owned(decompress(head.stored)?),
            false => Cow::Borrowed(head.stored),
        };
        let (count, length) = (head.count, body.len());
        if count == 0 || widen(count) > length / SHORTEST_MESSAGE {
            return Err(Fault::Count { count, length });
        }
        Ok(Self { head, body })
    }

    /// What stands in front of its messages.
    #[must_use]
    pub fn head(&self) -> &BundleHead<'a> {
        &self.head
    }

    /// How many messages it says that it has.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.head.count
    }

    /// The numbers of its first and last message, if it is sparse.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.head.span
    }

    /// Its messages in their order. `first`: the number of the first one, unless the bundle is sparse.
    #[must_use]
    pub fn messages(&self, first: u64) -> Messages<'_> {
        Messages {
            reader: Reader::new(&self.body),
            left: self.head.count,
            span: self.head.span,
            is_first: true,
            next: self.head.span.map_or(first, |span| span.first),
            time_ms: 0,
        }
    }
}

fn read_span(reader: &mut Reader<'_>, count: u32) -> Result<Span, Fault> {
    let first = reader.u64()?;
    if count <= 1 {
        return Ok(Span { first, last: first });
    }
    let between = u64::from(reader.varint()?);
    let last = first.checked_add(between).and_then(|last| last.checked_add(1));
    match last {
        Some(last) if last - first >= u64::from(count) - 1 => Ok(Span { first, last }),
        _ => Err(Fault::Numbers),
    }
}

fn decompress(compressed: &[u8]) -> Result<Vec<u8>, Fault> {
    let length = snap::raw::decompress_len(compressed).map_err(|_| Fault::Compression)?;
    check_length("the decompressed part of a bundle", length, MAX_BUNDLE)?;
    let most = compressed.len().saturating_mul(MOST_EXPANSION) + EXPANSION_SLACK;
    if length > most {
        return Err(Fault::Compression);
    }
    let mut decoder = snap::raw::Decoder::new();
    decoder.decompress_vec(compressed).map_err(|_| Fault::Compression)
}

/// The messages of a bundle. After an error there are none.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    reader: Reader<'a>,
    left: u32,
    span: Option<Span>,
    is_first: bool,
    /// The number after the one before.
    next: u64,
    time_ms: u64,
}

impl<'a> Messages<'a> {
    fn read(&mut self) -> Result<Message<'a>, Fault> {
        let flags = self.reader.u8()?;
        let sequence = self.number(flags)?;
        if flags & SAME_TIME == 0 {
            self.time_ms = self.reader.u64()?;
        }
        let key = match flags & HAS_KEY {
            0 => None,
            _ => Some(self.reader.short()?),
        };
        let content = self.reader.framed()?;
        self.is_first = false;
        self.next = sequence.wrapping_add(1);
        self.left -= 1;
        if self.left == 0 {
            self.reader.end()?;
        }
        Ok(Message {
            sequence,
            time_ms: self.time_ms,
            key,
            content,
        })
    }

    /// The number of the message whose flags these are.
    fn number(&mut self, flags: u8) -> Result<u64, Fault> {
        let Some(span) = self.span else { return Ok(self.next) };
        if self.is_first {
            return Ok(span.first);
        }
        let is_last = self.left == 1;
        let sequence = match flags & NEXT_NUMBER {
            _ if is_last => Some(span.last),
            0 => self.next.checked_add(u64::from(self.reader.varint()?)),
            _ => Some(self.next),
        };
        let rises = |sequence: &u64| self.next <= *sequence && (is_last || *sequence < span.last);
        sequence.filter(rises).ok_or(Fault::Numbers)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

/// Why messages do not fit into a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is none.
    #[error("a bundle has at least one message")]
    NoMessages,
    /// A key is too long.
    #[error("a key of {0} bytes; TANK has room for 255")]
    KeyTooLong(usize),
    /// They are too long together.
    #[error("messages of {0} bytes do not fit into a bundle, which holds 64 MiB")]
    TooLarge(usize),
    /// Their numbers do not rise, or are too far apart.
    #[error("the numbers of a sparse bundle rise, by less than 2^32 at once and from the first to the last")]
    Numbers,
}

/// Messages as a bundle without numbers: the broker gives them those that follow. Their own are not looked at.
///
/// # Errors
/// [`EncodeError`].
pub fn encode_bundle(messages: &[Message<'_>]) -> Result<Bytes, EncodeError> {
    encode(messages, None)
}

/// Messages as a bundle that has their numbers.
///
/// # Errors
/// [`EncodeError`].
pub fn encode_sparse_bundle(messages: &[Message<'_>]) -> Result<Bytes, EncodeError> {
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Err(EncodeError::NoMessages);
    };
    let span = Span {
        first: first.sequence,
        last: last.sequence,
    };
    encode(messages, Some(span))
}

fn encode(messages: &[Message<'_>], span: Option<Span>) -> Result<Bytes, EncodeError> {
    if messages.is_empty() {
        return Err(EncodeError::NoMessages);
    }
    let body = encode_messages(messages, span.is_some())?;
    let count = u8::try_from(messages.len()).ok().filter(|count| *count <= COUNT_MASK);
    let mut flags = count.unwrap_or(0) << COUNT_SHIFT;
    let compressed = compress(&body);
    if compressed.is_some() {
        flags |= SNAPPY;
    }
    if span.is_some() {
        flags |= SPARSE;
    }
    let mut bundle = BytesMut::new();
    bundle.put_u8(flags);
    if count.is_none() {
        bundle.put_varint(narrow(messages.len()));
    }
    if let Some(Span { first, last }) = span {
        bundle.put_u64_le(first);
        if messages.len() > 1 {
            let between = last.checked_sub(first).and_then(|apart| apart.checked_sub(1));
            let between = between.and_then(|between| u32::try_from(between).ok());
            bundle.put_varint(between.ok_or(EncodeError::Numbers)?);
        }
    }
    bundle.extend_from_slice(compressed.as_deref().unwrap_or(&body));
    match bundle.len() {
        length if length > MAX_BUNDLE => Err(EncodeError::TooLarge(length)),
        _ => Ok(bundle.freeze()),
    }
}

fn encode_messages(messages: &[Message<'_>], is_sparse: bool) -> Result<Vec<u8>, EncodeError> {
    let mut body = Vec::new();
    let mut before: Option<&Message<'_>> = None;
    for (place, message) in messages.iter().enumerate() {
        let is_last = place + 1 == messages.len();
        let mut flags = 0;
        if message.key.is_some() {
            flags |= HAS_KEY;
        }
        if before.is_some_and(|before| before.time_ms == message.time_ms) {
            flags |= SAME_TIME;
        }
        let skipped = match before {
            Some(before) if is_sparse => Some(skipped(before.sequence, message.sequence)?),
            _ => None,
        };
        // That of the last message stands in the bundle's head.
        let skipped = skipped.filter(|_| !is_last);
        if skipped == Some(0) {
            flags |= NEXT_NUMBER;
        }
        body.put_u8(flags);
        if let Some(skipped) = skipped.filter(|skipped| *skipped > 0) {
            body.put_varint(skipped);
        }
        if flags & SAME_TIME == 0 {
            body.put_u64_le(message.time_ms);
        }
        if let Some(key) = message.key {
            if key.len() > MAX_KEY {
                return Err(EncodeError::KeyTooLong(key.len()));
            }
            body.put_short(key);
        }
        if message.content.len() > MAX_BUNDLE - body.len().min(MAX_BUNDLE) {
            return Err(EncodeError::TooLarge(body.len().saturating_add(message.content.len())));
        }
        body.put_varint(narrow(message.content.len()));
        body.put_slice(message.content);
        before = Some(message);
    }
    if body.len() > MAX_BUNDLE {
        return Err(EncodeError::TooLarge(body.len()));
    }
    Ok(body)
}

/// How many numbers lie between two.
fn skipped(before: u64, sequence: u64) -> Result<u32, EncodeError> {
    let between = sequence.checked_sub(before).and_then(|apart| apart.checked_sub(1));
    between
        .and_then(|between| u32::try_from(between).ok())
        .ok_or(EncodeError::Numbers)
}

/// Messages compressed, where that is worth it.
fn compress(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() <= COMPRESS_ABOVE {
        return None;
    }
    let compressed = snap::raw::Encoder::new().compress_vec(body).ok()?;
    (compressed.len() < body.len()).then_some(compressed)
}

#[cfg(test)]
mod tests;
