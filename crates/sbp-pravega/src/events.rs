//! Events in the bytes of a segment.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::coding::{Put, Reader, check_length};
use crate::fault::Fault;
use crate::limits::{EVENT_HEAD, MAX_EVENT};

/// Puts an event as it stands in a segment.
///
/// # Errors
/// It has more than [`MAX_EVENT`] bytes.
pub fn put_event(out: &mut BytesMut, content: &[u8]) -> Result<(), Fault> {
    check_length("an event", content.len(), MAX_EVENT)?;
    out.put_i32(EVENT);
    out.put_sized(content)
}

/// What an event begins with.
const EVENT: i32 = 0;

/// Cuts events out of the bytes of a segment, which come in pieces that end anywhere.
#[derive(Debug, Clone)]
pub struct Events {
    /// The event that is incomplete, from its head on.
    partial: BytesMut,
    /// What has come behind it.
    front: Bytes,
    /// Where in the segment the next event begins.
    offset: i64,
}

impl Events {
    /// From where an event begins.
    #[must_use]
    pub fn new(offset: i64) -> Self {
        Self {
            partial: BytesMut::new(),
            front: Bytes::new(),
            offset,
        }
    }

    /// Where the next event begins.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Where in the segment the bytes that have come end.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.offset.saturating_add(wide(self.held()))
    }

    /// Bytes that have come and that no event was made of yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.partial.len() + self.front.len()
    }

    /// The bytes that follow those that have come. All whole events were taken before.
    pub fn push(&mut self, bytes: Bytes) {
        if self.front.is_empty() {
            self.front = bytes;
        } else {
            self.partial.extend_from_slice(&self.front);
            self.front = bytes;
        }
    }

    /// The next event: where it begins, and its content. `None` while it is incomplete.
    ///
    /// # Errors
    /// What stands there is no event. It is found again at the next call: nothing behind it can be read.
    pub fn next_event(&mut self) -> Result<Option<(i64, Bytes)>, Fault> {
        if self.partial.is_empty() {
            let whole = match whole_length(&self.front)? {
                Some(whole) if whole <= self.front.len() => whole,
                _ => {
                    self.partial.extend_from_slice(&self.front);
                    self.front = Bytes::new();
                    return Ok(None);
                }
            };
            let event = self.front.split_to(whole);
            return Ok(Some(self.found(event)));
        }
        self.fill(EVENT_HEAD);
        let Some(whole) = whole_length(&self.partial)? else {
            return Ok(None);
        };
        self.fill(whole);
        if self.partial.len() < whole {
            return Ok(None);
        }
        let event = self.partial.split_to(whole).freeze();
        Ok(Some(self.found(event)))
    }

    /// Has the incomplete event have so many bytes, as far as they have come.
    fn fill(&mut self, length: usize) {
        let missing = length.saturating_sub(self.partial.len()).min(self.front.len());
        self.partial.extend_from_slice(&self.front.split_to(missing));
    }

    fn found(&mut self, mut event: Bytes) -> (i64, Bytes) {
        let at = self.offset;
        self.offset = self.end_of(event.len());
        event.advance(EVENT_HEAD);
        (at, event)
    }

    fn end_of(&self, whole: usize) -> i64 {
        self.offset.saturating_add(wide(whole))
    }
}

fn wide(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The length of the event that begins here, its head included; `None` while the head is incomplete.
fn whole_length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(head) = bytes.get(..EVENT_HEAD) else {
        return Ok(None);
    };
    let mut reader = Reader::new(head);
    match reader.i32()? {
        EVENT => {}
        other => return Err(Fault::NoEvent(other)),
    }
    let length = reader.length("an event's length")?;
    check_length("an event", length, MAX_EVENT)?;
    Ok(Some(EVENT_HEAD + length))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sbp_wire::testing::every_split;

    use super::*;

    fn cut(offset: i64, pieces: &[&[u8]]) -> Result<Vec<(i64, Bytes)>, Fault> {
        let mut events = Events::new(offset);
        let mut cut = Vec::new();
        for piece in pieces {
            events.push(Bytes::copy_from_slice(piece));
            while let Some(event) = events.next_event()? {
                cut.push(event);
            }
        }
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert_eq!(events.end(), offset + length as i64, "nothing is lost");
        Ok(cut)
    }

    fn segment(contents: &[&[u8]]) -> BytesMut {
        let mut bytes = BytesMut::new();
        for content in contents {
            put_event(&mut bytes, content).expect("it fits");
        }
        bytes
    }

    #[test]
    fn reads_may_end_anywhere_in_an_event() {
        let bytes = segment(&[b"one", b"", b"three", &[7; 300]]);
        let events = every_split(&bytes, |pieces| cut(100, pieces)).expect("events");
        let told: Vec<_> = events
            .iter()
            .map(|(offset, content)| (*offset, content.len()))
            .collect();
        assert_eq!(told, [(100, 3), (111, 0), (119, 5), (132, 300)]);
    }

    #[test]
    fn what_is_no_event_is_told_however_it_comes() {
        let mut bytes = segment(&[b"one"]);
        let whole = bytes.len();
        for (head, fault) in [
            (&[0, 0, 0, 9, 0, 0, 0, 0][..], Fault::NoEvent(9)),
            (
                &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
                Fault::Negative {
                    what: "an event's length",
                    value: -1,
                },
            ),
            (
                &[0, 0, 0, 0, 0, 0x80, 0, 1],
                Fault::TooLong {
                    what: "an event",
                    length: 8_388_609,
                    limit: 8_388_608,
                },
            ),
        ] {
            bytes.truncate(whole);
            bytes.extend_from_slice(head);
            assert_eq!(every_split(&bytes, |pieces| cut(0, pieces)), Err(fault));
        }
        assert!(put_event(&mut bytes, &vec![0; MAX_EVENT + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_cuts_bring_the_same_events(contents in vec(vec(any::<u8>(), 0..40), 0..20), cuts in vec(1_usize..50, 1..60)) {
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let bytes = segment(&contents);
            let mut left = &bytes[..];
            let mut pieces = Vec::new();
            for step in cuts.iter().cycle() {
                let (head, tail) = left.split_at((*step).min(left.len()));
                pieces.push(head);
                left = tail;
                if left.is_empty() {
                    break;
                }
            }
            let events = cut(0, &pieces).expect("events");
            let read: Vec<&[u8]> = events.iter().map(|(_, content)| &content[..]).collect();
            prop_assert_eq!(read, contents);
        }
    }
}
