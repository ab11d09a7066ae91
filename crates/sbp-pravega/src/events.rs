//! Events in the bytes of a segment.

use std::ops::ControlFlow;

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

/// Cuts events off the front of bytes that lie in one piece.
#[derive(Debug, Clone)]
pub struct WholeEvents<'a> {
    rest: &'a [u8],
}

impl<'a> WholeEvents<'a> {
    /// Of these bytes, with which an event begins.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes behind the events that were cut off.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The content of the next event; `None` while it is incomplete.
    ///
    /// # Errors
    /// What stands there is no event. Nothing is cut off then.
    pub fn next_event(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        let Some(whole) = whole_length(self.rest)? else {
            return Ok(None);
        };
        let Some((event, rest)) = self.rest.split_at_checked(whole) else {
            return Ok(None);
        };
        self.rest = rest;
        Ok(event.get(EVENT_HEAD..))
    }
}

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

    /// Hands the events that are complete and begin in front of `until` to `take`: where each begins, its content, and where it ends.
    /// Other than [`Self::next_event`] it shares no memory with the bytes that came, which costs more than to copy a small event.
    ///
    /// It ends when there is no such event, or behind the first for which `take` breaks.
    ///
    /// # Errors
    /// What stands there is no event. It is found again at the next call: nothing behind it can be read.
    pub fn each<B>(
        &mut self,
        until: i64,
        mut take: impl FnMut(i64, &[u8], i64) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Fault> {
        // One that has come in pieces lies apart from those that follow it.
        while !self.partial.is_empty() && self.offset < until {
            let Some((at, content)) = self.next_event()? else {
                return Ok(ControlFlow::Continue(()));
            };
            let taken = take(at, &content, self.offset);
            if taken.is_break() {
                return Ok(taken);
            }
        }
        let mut events = WholeEvents::new(&self.front);
        let mut offset = self.offset;
        let outcome = loop {
            if offset >= until {
                break Ok(ControlFlow::Continue(()));
            }
            let content = match events.next_event() {
                Ok(Some(content)) => content,
                Ok(None) => break Ok(ControlFlow::Continue(())),
                Err(fault) => break Err(fault),
            };
            let end = offset.saturating_add(wide(EVENT_HEAD + content.len()));
            let taken = take(offset, content, end);
            offset = end;
            if taken.is_break() {
                break Ok(taken);
            }
        };
        let cut = self.front.len() - events.rest().len();
        self.front.advance(cut);
        self.offset = offset;
        outcome
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

    /// The same as [`cut`], without a share in the memory.
    fn cut_each(offset: i64, pieces: &[&[u8]]) -> Result<Vec<(i64, Bytes)>, Fault> {
        let mut events = Events::new(offset);
        let mut cut = Vec::new();
        for piece in pieces {
            events.push(Bytes::copy_from_slice(piece));
            let outcome = events.each(i64::MAX, |at, content, end| {
                assert_eq!(end, at + content.len() as i64 + 8);
                cut.push((at, Bytes::copy_from_slice(content)));
                ControlFlow::<()>::Continue(())
            })?;
            assert!(outcome.is_continue());
        }
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert_eq!(events.end(), offset + length as i64, "nothing is lost");
        Ok(cut)
    }

    #[test]
    fn reads_may_end_anywhere_in_an_event() {
        let bytes = segment(&[b"one", b"", b"three", &[7; 300]]);
        let events = every_split(&bytes, |pieces| {
            let events = cut(100, pieces)?;
            assert_eq!(cut_each(100, pieces)?, events);
            Ok::<_, Fault>(events)
        });
        let events = events.expect("events");
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
            assert_eq!(every_split(&bytes, |pieces| cut_each(0, pieces)), Err(fault));
        }
        assert!(put_event(&mut bytes, &vec![0; MAX_EVENT + 1]).is_err());
    }

    #[test]
    fn events_are_handed_out_up_to_a_place_or_until_it_is_enough() {
        let bytes = segment(&[b"one", b"two", b"three", b"four"]).freeze();
        for begun in [0, 5, 15] {
            let mut events = Events::new(50);
            events.push(bytes.slice(..begun));
            let mut seen = Vec::new();
            let mut each = |events: &mut Events, until, enough: &[u8]| {
                let outcome = events.each(until, |_, content, _| {
                    seen.push(Bytes::copy_from_slice(content));
                    match content == enough {
                        true => ControlFlow::Break("enough"),
                        false => ControlFlow::Continue(()),
                    }
                });
                outcome.expect("events")
            };
            assert_eq!(each(&mut events, 62, b""), ControlFlow::Continue(()));
            events.push(bytes.slice(begun..));
            assert_eq!(each(&mut events, 62, b""), ControlFlow::Continue(()));
            assert_eq!((events.offset(), events.held()), (72, 25));
            assert_eq!(each(&mut events, i64::MAX, b"three"), ControlFlow::Break("enough"));
            assert_eq!(events.offset(), 85);
            assert_eq!(
                events.next_event().expect("events"),
                Some((85, Bytes::from_static(b"four")))
            );
            assert_eq!(seen, [&b"one"[..], b"two", b"three"]);
        }
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
            prop_assert_eq!(&cut_each(0, &pieces).expect("events"), &events);
            let read: Vec<&[u8]> = events.iter().map(|(_, content)| &content[..]).collect();
            prop_assert_eq!(read, contents);
        }
    }
}
