//! What is done with a connection: requests, replies, messages.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use sbp_wire::Machine;

use super::{Connection, Refused, Role, Stage, Unsent};
use crate::event::{Call, CloseReason};
use crate::exception::Exception;
use crate::fault::{Fault, check_length, narrow};
use crate::limits::{LONGEST_TIMEOUT, MAX_FRAME, STREAM_WINDOW_BYTES};
use crate::negotiation::Features;

/// What stands where a stream's next length would, behind its last message.
pub(super) const END_OF_STREAM: u32 = u32::MAX;
/// The duration of a handler that was not measured.
pub(super) const NOT_MEASURED: u32 = u32::MAX;

impl Connection {
    /// Queues a request. It ends with [`Replied`](crate::Event::Replied) or [`CallFailed`](crate::Event::CallFailed), each with
    /// `user`, the latter at `deadline` at the latest. The server is told how much time is left, where that was agreed.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then.
    pub fn call(
        &mut self,
        verb: u64,
        payload: &Bytes,
        deadline: Instant,
        user: u64,
        now: Instant,
    ) -> Result<(), Refused> {
        let (id, position) = self.request(verb, payload, Some(deadline), now)?;
        if let Role::Client(client) = &mut self.role {
            client.calls.insert(id, user, deadline, position);
        }
        Ok(())
    }

    /// Queues a request that has no reply. It ends with [`Sent`](crate::Event::Sent) when it is written, or with
    /// [`CallFailed`](crate::Event::CallFailed), each with `user`.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then.
    pub fn send(&mut self, verb: u64, payload: &Bytes, user: u64, now: Instant) -> Result<(), Refused> {
        let (_, begins) = self.request(verb, payload, None, now)?;
        let ends = self.core.queue.pushed();
        if let Role::Client(client) = &mut self.role {
            client.unsent.push_back(Unsent { begins, ends, user });
        }
        Ok(())
    }

    /// Queues a request. Its id, and where it begins among all bytes ever queued.
    fn request(
        &mut self,
        verb: u64,
        payload: &Bytes,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<(i64, u64), Refused> {
        self.core.advance_time(now);
        self.check_ready(false)?;
        check_length("a request", payload.len(), MAX_FRAME)?;
        let left = deadline.map_or(0, |deadline| {
            millis_left(deadline.saturating_duration_since(self.core.now))
        });
        let timeout = self.agreed.timeout;
        let Role::Client(client) = &mut self.role else {
            return Err(Refused::OtherKind);
        };
        client.last += 1;
        let id = client.last;
        let position = self.core.queue.pushed();
        let mut head = Vec::with_capacity(28);
        if timeout {
            head.put_u64_le(left);
        }
        head.put_u64_le(verb);
        head.put_i64_le(id);
        head.put_u32_le(narrow(payload.len()));
        self.queue_frame(&head, payload);
        Ok((id, position))
    }

    /// Answers a request of the client: with what its verb returns, or an exception. Where the client has stopped waiting,
    /// nothing is sent.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then, and the request is over unless the answer is [unfit](Refused::Unfit).
    pub fn reply(&mut self, call: Call, reply: Result<&Bytes, &Exception>, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        let exception;
        let (id, payload) = match reply {
            Ok(payload) => (call.id, payload),
            Err(raised) => {
                exception = raised.encode()?;
                (-call.id, &exception)
            }
        };
        check_length("a reply", payload.len(), MAX_FRAME)?;
        let Some(ended) = self.end_call(call) else {
            return Err(Refused::UnknownCall);
        };
        if !self.core.is_open() {
            return Err(Refused::Closed);
        }
        if ended.due.is_some_and(|due| due < self.core.now) {
            self.stats.late_replies += 1;
            return Ok(());
        }
        let handler = self.core.now.saturating_duration_since(ended.begun);
        self.queue_response(id, payload, Some(handler));
        Ok(())
    }

    pub(super) fn queue_response(&mut self, id: i64, payload: &Bytes, handler: Option<Duration>) {
        let mut head = Vec::with_capacity(16);
        head.put_i64_le(id);
        head.put_u32_le(narrow(payload.len()));
        if self.agreed.duration {
            let micros = handler.and_then(|time| u32::try_from(time.as_micros()).ok());
            head.put_u32_le(micros.unwrap_or(NOT_MEASURED));
        }
        self.queue_frame(&head, payload);
    }

    /// Ends a request without an answer: its verb has none, or there is none that would be true.
    pub fn forget(&mut self, call: Call) {
        self.end_call(call);
    }

    /// As [`Self::forget`], for all requests of the client: a server that goes away waits for nobody who works on one.
    pub fn forget_all(&mut self) {
        if let Role::Server(server) = &mut self.role {
            server.calls.clear();
            server.bytes = 0;
        }
    }

    fn end_call(&mut self, call: Call) -> Option<super::PeerCall> {
        let Role::Server(server) = &mut self.role else {
            return None;
        };
        server.calls.get(&call.id).filter(|open| open.number == call.number)?;
        let ended = server.calls.remove(&call.id)?;
        server.bytes = server.bytes.saturating_sub(ended.bytes);
        Some(ended)
    }

    /// Lets a stream in whose parent there is. One that is not let in is [closed](sbp_wire::Endpoint::close), with nothing said.
    ///
    /// # Errors
    /// [`Refused`]: it does not wait for that.
    pub fn admit(&mut self, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        if !self.core.is_open() {
            return Err(Refused::Closed);
        }
        if self.stage != Stage::Admission {
            return Err(Refused::OtherKind);
        }
        self.answer_negotiation();
        // Frames may have come already.
        self.core.held = true;
        Ok(())
    }

    /// Says what a server agrees to.
    pub(super) fn answer_negotiation(&mut self) {
        self.stage = Stage::Frames;
        self.negotiate_by = None;
        let frame = self.own.encode();
        self.queue_bytes(&frame);
    }

    /// Queues a message on a stream. While the stream [is full](Self::is_full), it should wait.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then.
    pub fn message(&mut self, message: &Bytes, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        self.check_ready(true)?;
        if message.is_empty() {
            return Err(Refused::Empty);
        }
        check_length("a message", message.len(), MAX_FRAME)?;
        if self.stream.is_some_and(|stream| stream.has_ended) {
            return Err(Refused::Closed);
        }
        let head = narrow(message.len()).to_le_bytes();
        self.queue_frame(&head, message);
        let is_full = self.core.queue.len() >= STREAM_WINDOW_BYTES;
        if let Some(stream) = &mut self.stream {
            stream.is_full = is_full;
        }
        Ok(())
    }

    /// Ends this side's direction of a stream. The connection is over when both have.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn end_stream(&mut self, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        self.check_ready(true)?;
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.has_ended) else {
            return Ok(());
        };
        stream.has_ended = true;
        let is_over = stream.peer_has_ended;
        self.queue_frame(&END_OF_STREAM.to_le_bytes(), &Bytes::new());
        if is_over {
            self.end_after_flush(CloseReason::Ended);
        }
        Ok(())
    }

    /// Whether as many bytes of a stream wait to be written as may. [`Event::Room`](crate::Event::Room) tells when not any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.stream.is_some_and(|stream| stream.is_full)
    }

    /// A message of so many bytes was taken by whoever reads the stream.
    pub fn took(&mut self, length: usize) {
        if let Some(stream) = &mut self.stream {
            stream.unread = stream.unread.saturating_sub(1);
            stream.unread_bytes = stream.unread_bytes.saturating_sub(length);
        }
    }

    /// Whether it is open, negotiated, and of the kind that does this.
    fn check_ready(&self, for_streams: bool) -> Result<(), Refused> {
        match self.core.is_open() {
            false => Err(Refused::Closed),
            true if self.stream.is_some() != for_streams || self.negotiate_by.is_some() => Err(Refused::OtherKind),
            true => Ok(()),
        }
    }
}

/// What a request says of the time that is left; 0 would say nothing.
fn millis_left(left: Duration) -> u64 {
    u64::try_from(left.min(LONGEST_TIMEOUT).as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

impl Connection {
    /// What a server that is about to agree says.
    pub(super) fn agree(&mut self, asked: &Features) -> Result<(), Fault> {
        match &self.role {
            Role::Server(server) => {
                let codec = asked.choose(&server.config.codecs);
                self.agreed.codec = codec;
                self.own.compress = codec.map(|codec| Bytes::from_static(codec.name().as_bytes()));
                self.own.timeout = asked.timeout;
                self.own.handler_duration = asked.handler_duration;
                self.own.isolation.clone_from(&asked.isolation);
                self.agreed.timeout = asked.timeout;
                self.agreed.duration = asked.handler_duration;
            }
            Role::Client(client) => {
                let codec = asked.choose(&client.offered);
                if asked.compress.is_some() && codec.is_none() {
                    return Err(Fault::Codec);
                }
                self.agreed.codec = codec;
                self.agreed.timeout = self.own.timeout && asked.timeout;
                self.agreed.duration = self.own.handler_duration && asked.handler_duration;
            }
        }
        Ok(())
    }
}
