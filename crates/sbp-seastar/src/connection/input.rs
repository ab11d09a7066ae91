//! Received bytes, taken apart.

use std::time::Duration;

use bytes::{Buf, Bytes};
use sbp_wire::Machine;

use super::calls::{END_OF_STREAM, NOT_MEASURED};
use super::{Connection, PeerCall, Role, Stage};
use crate::event::{Call, CloseReason, Event, Negotiated};
use crate::exception::Exception;
use crate::fault::{Fault, check_length, widen};
use crate::limits::{LONGEST_TIMEOUT, MAX_COMPRESSED, MAX_FRAME, MAX_NEGOTIATION};
use crate::negotiation::{Features, HEAD, MAGIC};

/// Bytes of a length.
const LENGTH: usize = 4;

/// Whether there may be more to do with what has arrived.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    GoesOn,
    NeedsBytes,
}

/// A frame's head, and how many bytes follow it.
#[derive(Debug, Clone, Copy)]
struct Head {
    kind: Kind,
    length: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Request { timeout: Duration, verb: u64, id: i64 },
    Response { id: i64, handler: Option<Duration> },
    Message,
    End,
}

impl Connection {
    /// Takes apart what has arrived, as far as that and the limits allow.
    pub(super) fn take_apart(&mut self) {
        self.core.held = false;
        while self.core.is_open() {
            if !matches!(self.stage, Stage::Skip { .. }) && !self.has_room() {
                self.core.held = !self.core.intake.received().is_empty();
                if let Role::Server(server) = &mut self.role {
                    // Nothing is read meanwhile, which is no fault of the client.
                    server.arrival.stop();
                }
                return;
            }
            match self.step() {
                Ok(Progress::GoesOn) => {}
                Ok(Progress::NeedsBytes) => return self.note_arrival(),
                Err(fault) => self.end_for(fault),
            }
        }
    }

    /// Notes how much of a frame has arrived.
    fn note_arrival(&mut self) {
        let part = self.part();
        if let Role::Server(server) = &mut self.role {
            server
                .arrival
                .note(part, self.stats.frames_in, self.core.bytes_in, self.core.now);
        }
    }

    fn step(&mut self) -> Result<Progress, Fault> {
        match self.stage {
            Stage::Negotiation => self.read_negotiation(),
            // Held back by `has_room`.
            Stage::Admission => Ok(Progress::NeedsBytes),
            Stage::Frames if self.agreed.codec.is_some() => self.read_compressed(),
            Stage::Frames => self.read_frame(),
            Stage::Skip { left, id, length } => {
                let left = left - self.core.intake.skip(left);
                if left > 0 {
                    self.stage = Stage::Skip { left, id, length };
                    return Ok(Progress::NeedsBytes);
                }
                self.stage = Stage::Frames;
                self.stats.frames_in += 1;
                self.refuse_for_memory(id, length);
                Ok(Progress::GoesOn)
            }
        }
    }

    /// Bytes in front of what a frame carries.
    pub(super) fn head_length(&self) -> usize {
        match (self.stage, &self.role) {
            (Stage::Negotiation | Stage::Admission, _) => HEAD,
            _ if self.agreed.codec.is_some() => LENGTH,
            _ => self.frame_head_length(),
        }
    }

    /// The same of the frame inside a compressed one.
    fn frame_head_length(&self) -> usize {
        match &self.role {
            _ if self.stream.is_some() => LENGTH,
            Role::Server(_) => 20 + if self.agreed.timeout { 8 } else { 0 },
            Role::Client(_) => 12 + if self.agreed.duration { 4 } else { 0 },
        }
    }

    /// The whole of what begins with `head` bytes and has `length` more, once it is there.
    fn take_whole(&mut self, head: usize, length: usize) -> Option<Bytes> {
        let mut whole = self.core.intake.take(head.saturating_add(length))?;
        self.stats.frames_in += 1;
        whole.advance(head);
        Some(whole)
    }

    fn read_negotiation(&mut self) -> Result<Progress, Fault> {
        let received = self.core.intake.received();
        let magic = received.get(..MAGIC.len()).unwrap_or(received);
        if !MAGIC.starts_with(magic) {
            return Err(Fault::Magic);
        }
        let Some([_, _, _, _, _, _, _, _, length @ ..]) = received.first_chunk::<HEAD>() else {
            self.core.intake.wait_for(HEAD);
            return Ok(Progress::NeedsBytes);
        };
        let length = widen(u32::from_le_bytes(*length));
        check_length("a negotiation", length, MAX_NEGOTIATION)?;
        let Some(features) = self.take_whole(HEAD, length) else {
            return Ok(Progress::NeedsBytes);
        };
        let features = Features::decode(&features)?;
        self.agree(&features)?;
        let is_client = matches!(self.role, Role::Client(_));
        let mut negotiated = Negotiated {
            connection_id: features.connection_id,
            parent: self.own.stream_parent,
            isolation: features.isolation,
            codec: self.agreed.codec,
        };
        if is_client {
            self.negotiate_by = None;
            self.stage = Stage::Frames;
        } else {
            negotiated.connection_id = self.own.connection_id;
            negotiated.parent = features.stream_parent;
            match (features.stream_parent, self.own.connection_id) {
                (None, _) => self.answer_negotiation(),
                (Some(_), Some(_)) => {
                    self.stream = Some(super::StreamState::default());
                    self.stage = Stage::Admission;
                }
                (Some(parent), None) => return Err(Fault::NoParent(parent)),
            }
        }
        self.core.events.push_back(Event::Negotiated(negotiated));
        Ok(Progress::GoesOn)
    }

    fn read_compressed(&mut self) -> Result<Progress, Fault> {
        let Some(length) = self.core.intake.received().first_chunk::<LENGTH>() else {
            self.core.intake.wait_for(LENGTH);
            return Ok(Progress::NeedsBytes);
        };
        let length = widen(u32::from_le_bytes(*length));
        check_length("a compressed frame", length, MAX_COMPRESSED)?;
        let Some(compressed) = self.take_whole(LENGTH, length) else {
            return Ok(Progress::NeedsBytes);
        };
        let Some(codec) = self.agreed.codec.filter(|_| length > 0) else {
            return Ok(Progress::GoesOn);
        };
        let mut frame = codec.decompress(&compressed)?;
        if frame.is_empty() {
            return Ok(Progress::GoesOn);
        }
        let head = self.head(&frame)?.ok_or_else(|| Fault::Cut {
            missing: self.frame_head_length().saturating_sub(frame.len()),
        })?;
        frame.advance(self.frame_head_length());
        match head.length.checked_sub(frame.len()) {
            Some(0) => self.handle(head, frame)?,
            Some(missing) => return Err(Fault::Cut { missing }),
            None => return Err(Fault::LeftOver(frame.len() - head.length)),
        }
        Ok(Progress::GoesOn)
    }

    fn read_frame(&mut self) -> Result<Progress, Fault> {
        let length = self.frame_head_length();
        let Some(head) = self.head(self.core.intake.received())? else {
            self.core.intake.wait_for(length);
            return Ok(Progress::NeedsBytes);
        };
        if let (Kind::Request { id, .. }, Role::Server(server)) = (head.kind, &self.role)
            && head.length > server.config.request_bytes
        {
            self.check_id(id)?;
            self.core.intake.skip(length);
            self.stage = Stage::Skip {
                left: head.length,
                id,
                length: head.length,
            };
            return Ok(Progress::GoesOn);
        }
        let Some(payload) = self.take_whole(length, head.length) else {
            return Ok(Progress::NeedsBytes);
        };
        self.handle(head, payload)?;
        Ok(Progress::GoesOn)
    }

    /// The head that these bytes begin with; `None` while it is incomplete.
    fn head(&self, bytes: &[u8]) -> Result<Option<Head>, Fault> {
        let Some(mut left) = bytes.get(..self.frame_head_length()) else {
            return Ok(None);
        };
        let (kind, length) = match &self.role {
            _ if self.stream.is_some() => match left.try_get_u32_le()? {
                END_OF_STREAM => (Kind::End, 0),
                length => (Kind::Message, length),
            },
            Role::Server(_) => {
                let timeout = match self.agreed.timeout {
                    true => Duration::from_millis(left.try_get_u64_le()?),
                    false => Duration::ZERO,
                };
                let (verb, id) = (left.try_get_u64_le()?, left.try_get_i64_le()?);
                (Kind::Request { timeout, verb, id }, left.try_get_u32_le()?)
            }
            Role::Client(_) => {
                let (id, length) = (left.try_get_i64_le()?, left.try_get_u32_le()?);
                let micros = match self.agreed.duration {
                    true => Some(left.try_get_u32_le()?).filter(|micros| *micros != NOT_MEASURED),
                    false => None,
                };
                let handler = micros.map(|micros| Duration::from_micros(micros.into()));
                (Kind::Response { id, handler }, length)
            }
        };
        let length = widen(length);
        check_length("a frame", length, MAX_FRAME)?;
        Ok(Some(Head { kind, length }))
    }

    fn handle(&mut self, head: Head, payload: Bytes) -> Result<(), Fault> {
        match head.kind {
            Kind::Request { timeout, verb, id } => self.handle_request(timeout, verb, id, payload),
            Kind::Response { id, handler } => self.handle_response(id, handler, payload),
            Kind::Message => self.handle_message(payload),
            Kind::End => self.handle_end(),
        }
    }

    fn check_id(&self, id: i64) -> Result<(), Fault> {
        match &self.role {
            Role::Server(server) if id <= 0 || server.calls.contains_key(&id) => Err(Fault::Id(id)),
            _ => Ok(()),
        }
    }

    fn handle_request(&mut self, timeout: Duration, verb: u64, id: i64, payload: Bytes) -> Result<(), Fault> {
        self.check_id(id)?;
        let Role::Server(server) = &mut self.role else {
            return Ok(());
        };
        if payload.len() > server.config.request_bytes {
            self.refuse_for_memory(id, payload.len());
            return Ok(());
        }
        server.last += 1;
        server.bytes += payload.len();
        let due = (!timeout.is_zero()).then(|| self.core.now + timeout.min(LONGEST_TIMEOUT));
        let open = PeerCall {
            number: server.last,
            bytes: payload.len(),
            begun: self.core.now,
            due,
        };
        let call = Call {
            id,
            number: open.number,
        };
        server.calls.insert(id, open);
        self.core.events.push_back(Event::Called {
            call,
            verb,
            payload,
            due,
        });
        Ok(())
    }

    /// Answers a request that there is no memory for.
    fn refuse_for_memory(&mut self, id: i64, length: usize) {
        let limit = match &self.role {
            Role::Server(server) => server.config.request_bytes,
            Role::Client(_) => 0,
        };
        let text = format!("the request has {length} bytes, and the server has memory for {limit}");
        // It is short.
        if let Ok(exception) = Exception::user(text).encode() {
            self.queue_response(-id, &exception, None);
        }
    }

    fn handle_response(&mut self, id: i64, handler: Option<Duration>, payload: Bytes) -> Result<(), Fault> {
        let asked = id.checked_abs().unwrap_or(0);
        // What cannot be read is not told as an answer.
        let reply = match id < 0 {
            true => Err(Exception::decode(&payload)?),
            false => Ok(payload),
        };
        let Role::Client(client) = &mut self.role else {
            return Ok(());
        };
        match client.calls.remove(asked) {
            Some(call) => self.core.events.push_back(Event::Replied {
                user: call.what,
                reply,
                handler,
            }),
            None => self.stats.unknown_responses += 1,
        }
        Ok(())
    }

    fn handle_message(&mut self, payload: Bytes) -> Result<(), Fault> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if stream.peer_has_ended {
            return Err(Fault::AfterEnd);
        }
        stream.unread += 1;
        stream.unread_bytes = stream.unread_bytes.saturating_add(payload.len());
        self.core.events.push_back(Event::Message(payload));
        Ok(())
    }

    fn handle_end(&mut self) -> Result<(), Fault> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if stream.peer_has_ended {
            return Err(Fault::AfterEnd);
        }
        stream.peer_has_ended = true;
        let is_over = stream.has_ended;
        self.core.events.push_back(Event::Ended);
        if is_over {
            self.end_after_flush(CloseReason::Ended);
        }
        Ok(())
    }
}
