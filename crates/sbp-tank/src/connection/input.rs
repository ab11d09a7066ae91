//! Received bytes, taken apart.

use std::collections::VecDeque;

use bytes::Bytes;
use sbp_wire::Machine;

use super::{Connection, PeerCall, Role};
use crate::answer::{Answer, Asked, Headed, read_header};
use crate::coding::{Framed, Reader, check_length, widen};
use crate::event::{Call, CloseReason, ConsumedPartition, Event, Violation};
use crate::fault::Fault;
use crate::limits::{MAX_ANSWER, MAX_HEADER, MAX_REQUEST};
use crate::request::{
    CONSUME, CREATE_TOPIC, DISCOVER_PARTITIONS, DISCOVER_TOPICS, PING, PRODUCE, PRODUCE_NUMBERED, Request, STATUS,
    TOPOLOGY,
};

/// Bytes in front of every frame: the message and the length.
const HEAD: usize = 5;
/// Bytes of a length in front of the header of an answer to Consume.
const HEADER_LENGTH: usize = 4;

/// What is being received.
///
/// ```text
/// Head -> Body ------------------------> Head
/// Head -> Header -> Chunks ------------> Head    an answer to Consume
///                -> Skip --------------> Head    one that nobody waits for
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    Head,
    Body { message: u8, length: usize },
    Header { length: usize },
    Chunks(Chunks),
    Skip { left: usize },
}

/// The bundles of an answer.
#[derive(Debug)]
pub(super) struct Chunks {
    /// The request.
    id: u32,
    /// The place of the present partition, and how many of its bytes are to come.
    place: usize,
    left: usize,
    /// Whether the rest of the present partition is a bundle that is cut.
    is_cut: bool,
    /// The partitions behind it.
    behind: VecDeque<usize>,
}

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
            if matches!(self.stage, Stage::Head) && !self.has_room() {
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
        // Every arm that is not finished puts its stage back.
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Head => self.read_head(),
            Stage::Body { message, length } => {
                let Some(payload) = self.core.intake.take(length) else {
                    self.stage = Stage::Body { message, length };
                    return Ok(Progress::NeedsBytes);
                };
                self.stats.frames_in += 1;
                let handled = match self.role {
                    Role::Client { .. } => self.handle_answer(message, &payload),
                    Role::Server { .. } => self.handle_request(message, &payload),
                };
                handled.map(|()| Progress::GoesOn)
            }
            Stage::Header { length } => self.read_consumed(length).map_err(|fault| Violation::Content {
                message: CONSUME,
                fault,
            }),
            Stage::Chunks(chunks) => self.read_chunk(chunks).map_err(|fault| Violation::Content {
                message: CONSUME,
                fault,
            }),
            Stage::Skip { left } => {
                let left = left - self.core.intake.skip(left);
                if left > 0 {
                    self.stage = Stage::Skip { left };
                    return Ok(Progress::NeedsBytes);
                }
                self.stats.frames_in += 1;
                Ok(Progress::GoesOn)
            }
        }
    }

    fn read_head(&mut self) -> Result<Progress, Violation> {
        let received = self.core.intake.received();
        let Some([message, length @ ..]) = received.first_chunk::<HEAD>() else {
            self.core.intake.wait_for(HEAD);
            return Ok(Progress::NeedsBytes);
        };
        let (message, length) = (*message, widen(u32::from_le_bytes(*length)));
        let is_client = matches!(self.role, Role::Client { .. });
        let is_known = match message {
            PRODUCE | CONSUME | PING | DISCOVER_PARTITIONS | CREATE_TOPIC | STATUS | DISCOVER_TOPICS | TOPOLOGY => true,
            PRODUCE_NUMBERED => !is_client,
            _ => false,
        };
        if !is_known {
            return Err(Violation::Message(message));
        }
        let limit = match message {
            PING => 0,
            _ if is_client => MAX_ANSWER,
            _ => MAX_REQUEST,
        };
        check_length("it", length, limit).map_err(|fault| Violation::Content { message, fault })?;
        self.core.intake.skip(HEAD);
        self.stage = match message {
            CONSUME if is_client => Stage::Header { length },
            message => Stage::Body { message, length },
        };
        Ok(Progress::GoesOn)
    }

    fn handle_request(&mut self, message: u8, payload: &Bytes) -> Result<(), Violation> {
        self.core.keepalive.note_received(self.core.now);
        if message == PING {
            self.stats.pings += 1;
            return Ok(());
        }
        let (id, request) = Request::decode(message, payload).map_err(|fault| Violation::Content { message, fault })?;
        let Role::Server { calls, last, bytes, .. } = &mut self.role else {
            return Ok(());
        };
        *last += 1;
        *bytes += payload.len();
        let of_peer = PeerCall {
            id,
            bytes: payload.len(),
        };
        calls.insert(*last, of_peer);
        self.core.events.push_back(Event::Request {
            call: Call(*last),
            request,
        });
        Ok(())
    }

    fn handle_answer(&mut self, message: u8, payload: &Bytes) -> Result<(), Violation> {
        let Role::Client { greeted_by, calls, .. } = &mut self.role else {
            return Ok(());
        };
        if message == PING {
            self.stats.pings += 1;
            if greeted_by.take().is_some() {
                self.core.events.push_back(Event::Greeted);
            }
            return Ok(());
        }
        let content = |fault| Violation::Content { message, fault };
        let mut reader = Reader::new(payload);
        let id = reader.u32().map_err(content)?;
        let Some(call) = calls.get(id) else {
            self.stats.unknown_answers += 1;
            return Ok(());
        };
        if call.asked.message() != message {
            return Err(Violation::OtherAnswer { message, id });
        }
        let answer = Answer::read(&call.asked, &mut reader).map_err(content)?;
        let user = call.user;
        calls.remove(id);
        self.core.events.push_back(Event::Answered { user, answer });
        Ok(())
    }

    /// The header of an answer to Consume.
    fn read_consumed(&mut self, length: usize) -> Result<Progress, Fault> {
        // What has arrived may be of the next frame already.
        check_inside(HEADER_LENGTH, length)?;
        let Some(header) = self.core.intake.received().first_chunk::<HEADER_LENGTH>() else {
            self.core.intake.wait_for(HEADER_LENGTH);
            self.stage = Stage::Header { length };
            return Ok(Progress::NeedsBytes);
        };
        let header = widen(u32::from_le_bytes(*header));
        check_length("its header", header, MAX_HEADER)?;
        let whole = HEADER_LENGTH + header;
        check_inside(whole, length)?;
        let Some(bytes) = self.core.intake.take(whole) else {
            self.stage = Stage::Header { length };
            return Ok(Progress::NeedsBytes);
        };
        let mut reader = Reader::new(bytes.get(HEADER_LENGTH..).unwrap_or_default());
        let id = reader.u32()?;
        let partitions = read_header(&mut reader)?;
        self.begin_consumed(id, partitions, length - whole)?;
        Ok(Progress::GoesOn)
    }

    fn begin_consumed(&mut self, id: u32, partitions: Vec<Headed>, left: usize) -> Result<(), Fault> {
        let lengths: VecDeque<_> = partitions.iter().map(|headed| widen(headed.state.length())).collect();
        let stated = lengths.iter().fold(0_usize, |sum, length| sum.saturating_add(*length));
        check_inside(stated, left)?;
        if stated < left {
            return Err(Fault::LeftOver(left - stated));
        }
        let Role::Client { calls, .. } = &self.role else {
            return Ok(());
        };
        let Some(call) = calls.get(id).filter(|call| call.asked == Asked::Consume) else {
            self.stats.unknown_answers += 1;
            self.stage = Stage::Skip { left };
            return Ok(());
        };
        let user = call.user;
        let told = partitions.into_iter().map(|headed| ConsumedPartition {
            topic: headed.topic,
            partition: headed.partition,
            state: headed.state,
        });
        self.core.events.push_back(Event::Consumed {
            user,
            partitions: told.collect(),
        });
        self.note_progress(id);
        let mut behind = lengths;
        let left = behind.pop_front().unwrap_or(0);
        self.stage = Stage::Chunks(Chunks {
            id,
            place: 0,
            left,
            is_cut: false,
            behind,
        });
        Ok(())
    }

    /// The next bundle of an answer to Consume.
    fn read_chunk(&mut self, mut chunks: Chunks) -> Result<Progress, Fault> {
        if chunks.left == 0 {
            match chunks.behind.pop_front() {
                Some(left) => {
                    chunks.place += 1;
                    (chunks.left, chunks.is_cut) = (left, false);
                    self.stage = Stage::Chunks(chunks);
                }
                None => self.end_consumed(chunks.id),
            }
            return Ok(Progress::GoesOn);
        }
        if chunks.is_cut {
            chunks.left -= self.core.intake.skip(chunks.left);
            let progress = match chunks.left {
                0 => Progress::GoesOn,
                _ => Progress::NeedsBytes,
            };
            self.stage = Stage::Chunks(chunks);
            return Ok(progress);
        }
        let received = self.core.intake.received();
        let here = received.get(..chunks.left).unwrap_or(received);
        let framed = Framed::of(here)?;
        let Some(framed) = framed.filter(|framed| framed.whole() <= chunks.left) else {
            if framed.is_none() && here.len() < chunks.left {
                let more = here.len() + 1;
                self.core.intake.wait_for(more);
                self.stage = Stage::Chunks(chunks);
                return Ok(Progress::NeedsBytes);
            }
            chunks.is_cut = true;
            let (place, length) = (chunks.place, framed.map_or(0, Framed::whole));
            self.tell(chunks.id, |user| Event::CutBundle { user, place, length });
            self.stage = Stage::Chunks(chunks);
            return Ok(Progress::GoesOn);
        };
        let Some(mut whole) = self.core.intake.take(framed.whole()) else {
            self.stage = Stage::Chunks(chunks);
            return Ok(Progress::NeedsBytes);
        };
        chunks.left -= framed.whole();
        let (place, bundle) = (chunks.place, whole.split_off(framed.head));
        self.tell(chunks.id, |user| Event::Bundle { user, place, bundle });
        self.note_progress(chunks.id);
        self.stage = Stage::Chunks(chunks);
        Ok(Progress::GoesOn)
    }

    fn end_consumed(&mut self, id: u32) {
        self.stats.frames_in += 1;
        self.tell(id, |user| Event::ConsumeEnded { user });
        if let Role::Client { calls, .. } = &mut self.role {
            calls.remove(id);
        }
    }

    /// Tells whoever waits for the answer; nobody, where the request has run out of time since.
    fn tell(&mut self, id: u32, event: impl FnOnce(u64) -> Event) {
        if let Role::Client { calls, .. } = &self.role
            && let Some(call) = calls.get(id)
        {
            self.core.events.push_back(event(call.user));
        }
    }

    /// A part of an answer has come: the rest has time anew.
    fn note_progress(&mut self, id: u32) {
        if let Role::Client { config, calls, .. } = &mut self.role {
            calls.extend(id, self.core.now + config.consume);
        }
    }
}

/// So many bytes are part of a frame with so many.
fn check_inside(part: usize, length: usize) -> Result<(), Fault> {
    match part.checked_sub(length) {
        None | Some(0) => Ok(()),
        Some(missing) => Err(Fault::Cut { missing }),
    }
}
