//! Received bytes, taken apart.

use bytes::Bytes;
use sbp_wire::Machine;

use super::{Connection, HEAD, PeerCall, Role, WRITERS};
use crate::append::join;
use crate::coding::{Reader, WriterId, check_length};
use crate::event::{Call, CloseReason, Event, Violation};
use crate::events::WholeEvents;
use crate::fault::Fault;
use crate::kinds::{APPEND_BLOCK, APPEND_BLOCK_END, HELLO, KEEP_ALIVE, UNSUPPORTED, is_reply, is_request};
use crate::limits::{HIGH_VERSION, LOW_VERSION, MAX_FRAME};
use crate::reply::Reply;
use crate::request::{BlockEnd, Request};

/// Whether there may be more to do with what has arrived.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    GoesOn,
    NeedsBytes,
}

impl Connection {
    /// Takes apart what has arrived, as far as that and the limits allow.
    pub(super) fn take_apart(&mut self) {
        self.core.held = false;
        while self.core.is_open() {
            if self.head.is_none() && !self.has_room() {
                self.core.held = !self.core.intake.received().is_empty();
                if let Role::Server { arrival, .. } = &mut self.role {
                    // Nothing is read meanwhile, which is no fault of the client.
                    arrival.stop();
                }
                return;
            }
            match self.step() {
                Ok(Progress::GoesOn) => {}
                Ok(Progress::NeedsBytes) => return self.note_arrival(),
                Err(violation) => self.end_after_flush(CloseReason::Violation(violation)),
            }
        }
    }

    /// Notes how much of a request has arrived.
    fn note_arrival(&mut self) {
        let part = self.part();
        if let Role::Server { arrival, .. } = &mut self.role {
            arrival.note(part, self.stats.frames_in, self.core.bytes_in, self.core.now);
        }
    }

    fn step(&mut self) -> Result<Progress, Violation> {
        let Some((kind, length)) = self.head else {
            return self.read_head();
        };
        let Some(payload) = self.core.intake.take(length) else {
            return Ok(Progress::NeedsBytes);
        };
        self.head = None;
        self.stats.frames_in += 1;
        self.core.keepalive.note_received(self.core.now);
        let content = |fault| Violation::Content { kind, fault };
        match kind {
            HELLO => self.handle_hello(&payload)?,
            KEEP_ALIVE => {
                if matches!(self.role, Role::Server { .. }) {
                    self.keep_alive();
                }
            }
            _ if matches!(self.role, Role::Client { .. }) => {
                let (id, reply) = Reply::decode(kind, &payload).map_err(content)?;
                self.handle_reply(id, reply)?;
            }
            APPEND_BLOCK => self.handle_block(&payload)?,
            APPEND_BLOCK_END => self.handle_block_end(&payload)?,
            kind => match UNSUPPORTED.iter().find(|(of, _)| *of == kind) {
                Some((_, name)) => {
                    let id = Reader::new(&payload).i64().map_err(content)?;
                    self.refuse(id, name);
                }
                None => {
                    let (id, request) = Request::decode(kind, &payload).map_err(content)?;
                    self.handle_request(id, payload.len(), request)?;
                }
            },
        }
        Ok(Progress::GoesOn)
    }

    fn read_head(&mut self) -> Result<Progress, Violation> {
        let received = self.core.intake.received();
        let Some(head) = received.get(..HEAD) else {
            self.core.intake.wait_for(HEAD);
            return Ok(Progress::NeedsBytes);
        };
        let mut reader = Reader::new(head);
        let content = |kind| move |fault| Violation::Content { kind, fault };
        let kind = reader.i32().map_err(content(0))?;
        let is_known = match self.role {
            Role::Client { .. } => is_reply(kind),
            Role::Server { .. } => is_request(kind),
        };
        if !is_known && kind != HELLO && kind != KEEP_ALIVE {
            return Err(Violation::Type(kind));
        }
        let length = reader.length("its length").map_err(content(kind))?;
        check_length("it", length.saturating_add(HEAD), MAX_FRAME).map_err(content(kind))?;
        self.core.intake.skip(HEAD);
        self.head = Some((kind, length));
        Ok(Progress::GoesOn)
    }

    fn handle_hello(&mut self, payload: &Bytes) -> Result<(), Violation> {
        let mut reader = Reader::new(payload);
        let mut number = || reader.i32().map_err(|fault| Violation::Content { kind: HELLO, fault });
        let (high, low) = (number()?, number()?);
        match &mut self.role {
            Role::Client { greeted_by, .. } => {
                if greeted_by.take().is_some() && is_spoken(high, low) {
                    self.core.events.push_back(Event::Greeted);
                }
            }
            Role::Server { version, .. } => {
                *version = high;
                self.hello();
            }
        }
        match is_spoken(high, low) {
            true => Ok(()),
            false => Err(Violation::Versions { high, low }),
        }
    }

    fn handle_reply(&mut self, id: i64, reply: Reply) -> Result<(), Violation> {
        let Role::Client { calls, .. } = &mut self.role else {
            return Ok(());
        };
        let found = match calls.get(id) {
            Some(call) if call.asked.is_answered_by(&reply) => Some(id),
            Some(_) => return Err(Violation::OtherReply { kind: reply.kind(), id }),
            // One without its request's id, and further ones to the same read, are recognized by what they say.
            None => calls.find(|call| call.asked.is_named_by(&reply)),
        };
        match found.and_then(|id| calls.remove(id)) {
            Some(call) => self.core.events.push_back(Event::Answered {
                user: call.what.user,
                reply,
            }),
            None => self.stats.unknown_replies += 1,
        }
        Ok(())
    }

    fn handle_request(&mut self, id: i64, bytes: usize, request: Request) -> Result<(), Violation> {
        let sets_up = match &request {
            Request::SetupAppend { writer, .. } => Some(*writer),
            _ => None,
        };
        let Role::Server {
            calls,
            last,
            bytes: held,
            writers,
            block,
            ..
        } = &mut self.role
        else {
            return Ok(());
        };
        if let Request::ConditionalAppend { writer, .. } = &request
            && (!writers.contains(writer) || block.is_some())
        {
            return Err(Violation::Writer);
        }
        if let Some(writer) = sets_up
            && writers.insert(writer)
            && writers.len() > WRITERS
        {
            return Err(Violation::Writers(WRITERS));
        }
        *last += 1;
        *held += bytes;
        calls.insert(*last, PeerCall { id, bytes, sets_up });
        self.core.events.push_back(Event::Request {
            call: Call(*last),
            request,
        });
        Ok(())
    }

    /// Says that something is not done here.
    fn refuse(&mut self, id: i64, name: &str) {
        let reply = Reply::NotSupported(name.to_owned());
        if let Ok(frame) = reply.collect(id, HIGH_VERSION) {
            self.queue_frame(reply.kind(), frame);
        }
    }

    fn handle_block(&mut self, payload: &Bytes) -> Result<(), Violation> {
        let mut reader = Reader::new(payload);
        let writer = reader.id().map_err(|fault| Violation::Content {
            kind: APPEND_BLOCK,
            fault,
        })?;
        let data = payload.slice_ref(reader.rest());
        let Role::Server { writers, block, .. } = &mut self.role else {
            return Ok(());
        };
        if !writers.contains(&writer) || block.is_some() {
            return Err(Violation::Writer);
        }
        *block = Some((writer, data));
        Ok(())
    }

    fn handle_block_end(&mut self, payload: &Bytes) -> Result<(), Violation> {
        let Role::Server { writers, block, .. } = &mut self.role else {
            return Ok(());
        };
        let begun = block.take();
        let (id, request) = read_append(payload, begun, |writer| writers.contains(&writer))?;
        let bytes = match &request {
            Request::Append { data, .. } => data.len(),
            _ => 0,
        };
        self.handle_request(id, bytes, request)
    }
}

/// Puts an append together.
fn read_append(
    payload: &Bytes,
    begun: Option<(WriterId, Bytes)>,
    is_set_up: impl Fn(WriterId) -> bool,
) -> Result<(i64, Request), Violation> {
    let mut found: Vec<(BlockEnd, Bytes)> = Vec::new();
    let mut wrong = None;
    for end in BlockEnd::readings(payload) {
        let joined = end.and_then(|end| {
            let block = begun.as_ref().map(|(_, data)| data.clone());
            let data = join(block, end.whole, end.data.clone())?;
            Ok((end, data))
        });
        match joined {
            Ok(joined) => found.push(joined),
            Err(fault) => drop(wrong.get_or_insert(fault)),
        }
    }
    // Few bytes can be read both ways: those that make as many events as are stated are meant.
    let fits = |(end, data): &(BlockEnd, Bytes)| count_events(data) == i64::from(end.events);
    let place = match found.len() {
        2.. => found.iter().position(fits).unwrap_or(0),
        _ => 0,
    };
    if place >= found.len() {
        return Err(Violation::Content {
            kind: APPEND_BLOCK_END,
            fault: wrong.unwrap_or(Fault::NoEvents(0)),
        });
    }
    let (end, data) = found.swap_remove(place);
    if !is_set_up(end.writer) || begun.is_some_and(|(writer, _)| writer != end.writer) {
        return Err(Violation::Writer);
    }
    let append = Request::Append {
        writer: end.writer,
        data,
        events: end.events,
        last: end.last,
    };
    Ok((end.id, append))
}

/// How many events bytes are; -1: they are something else.
fn count_events(data: &[u8]) -> i64 {
    let mut events = WholeEvents::new(data);
    let mut count = 0;
    loop {
        match events.next_event() {
            Ok(Some(_)) => count += 1,
            Ok(None) if events.rest().is_empty() => return count,
            _ => return -1,
        }
    }
}

/// Whether there is a version that both sides speak.
fn is_spoken(high: i32, low: i32) -> bool {
    high >= LOW_VERSION && low <= HIGH_VERSION
}
