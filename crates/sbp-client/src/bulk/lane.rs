//! The batches of one stream.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use sbp_types::{Offset, StreamId};

use super::{BulkOptions, BulkRepeat, BulkStored, is_worth_repeating};
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::outcome::Ack;
use crate::retry::backoff;

/// Where one batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
    Stored,
}

/// One batch, kept until it is stored.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) base_sequence: i64,
    pub(super) records: u32,
    pub(super) batch: Bytes,
    pub(super) sent_first: Option<Instant>,
    attempts: u32,
    /// An attempt ended without an answer: the batch may be stored.
    in_doubt: bool,
    state: State,
    /// The writer's queue has its stream for it.
    is_queued: bool,
}

/// What is on its way to one stream, in its order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) next_sequence: i64,
    pub(super) stored: BulkStored,
    /// The batches that are not stored, and those behind the first of them.
    pieces: VecDeque<Piece>,
    in_flight: usize,
    /// Something was stored since the last trouble: the server knows the writer.
    is_known: bool,
    /// Something failed: nothing is sent until all that is on its way has come back.
    is_rewinding: bool,
    /// Rewinds since something was stored.
    troubles: u32,
    /// Nothing is sent before.
    not_before: Option<Instant>,
    /// Bytes of batches that were let go.
    released: usize,
}

impl Lane {
    pub(super) fn push(&mut self, batch: Bytes, records: u32) {
        self.pieces.push_back(Piece {
            base_sequence: self.next_sequence,
            records,
            batch,
            sent_first: None,
            attempts: 0,
            in_doubt: false,
            state: State::Waiting,
            is_queued: true,
        });
        self.next_sequence = self.next_sequence.saturating_add(records.into());
    }

    /// The next batch that may be sent, if its length fits; it counts as sent then.
    pub(super) fn take(&mut self, now: Instant, window: usize, fits: impl Fn(usize) -> bool) -> Option<&mut Piece> {
        let limit = if self.is_known { window.max(1) } else { 1 };
        if self.is_rewinding || self.in_flight >= limit || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let mut waiting = self.pieces.iter_mut().filter(|piece| piece.state == State::Waiting);
        let piece = waiting.next().filter(|piece| fits(piece.batch.len()))?;
        piece.state = State::InFlight;
        piece.is_queued = false;
        piece.attempts += 1;
        self.in_flight += 1;
        self.not_before = None;
        Some(piece)
    }

    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// A batch is stored. Returned if it was so before this side had sent it.
    pub(super) fn stored(&mut self, stream: StreamId, sequence: i64, ack: &Ack) -> Option<BulkRepeat> {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.is_known = true;
        self.troubles = 0;
        let piece = find(&mut self.pieces, sequence)?;
        piece.state = State::Stored;
        let records = i64::from(piece.records);
        self.stored.records += records;
        let base_offset = Some(ack.base_offset).filter(|base| base.0 >= 0);
        if let Some(base) = base_offset {
            let last = Offset(base.0.saturating_add(records - 1));
            self.stored.first = Some(self.stored.first.map_or(base, |first| first.min(base)));
            self.stored.last = self.stored.last.max(Some(last));
        }
        let repeat = (ack.duplicate && piece.attempts == 1).then(|| BulkRepeat {
            stream,
            base_offset,
            records,
            batch: piece.batch.clone(),
        });
        self.stored.repeats += u64::from(repeat.is_some());
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.state == State::Stored) {
            self.released += piece.batch.len();
        }
        repeat
    }

    /// A batch is not stored, as far as is known. Returns the error if that is for good.
    pub(super) fn failed(
        &mut self,
        sequence: i64,
        error: ClientError,
        options: &BulkOptions,
        now: Instant,
    ) -> Option<ClientError> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let is_first = self.pieces.front().is_some_and(|piece| piece.base_sequence == sequence);
        let piece = find(&mut self.pieces, sequence)?;
        piece.state = State::Waiting;
        piece.in_doubt |= error.is_indeterminate();
        let in_doubt = piece.in_doubt;
        self.is_rewinding = true;
        let over = piece
            .sent_first
            .is_some_and(|first| now.saturating_duration_since(first) >= options.timeout);
        let is_final = over || !is_worth_repeating(&error, is_first);
        is_final.then(|| if in_doubt { error.in_doubt() } else { error })
    }

    /// Bytes that were let go since this was asked last.
    pub(super) fn released(&mut self) -> usize {
        std::mem::take(&mut self.released)
    }

    /// Begins anew behind what is stored, once everything has come back. Returns how many batches wait again.
    pub(super) fn rewind(&mut self, policy: &RetryPolicy, now: Instant) -> usize {
        if !self.is_rewinding || self.in_flight > 0 {
            return 0;
        }
        self.is_rewinding = false;
        self.is_known = false;
        self.troubles = self.troubles.saturating_add(1);
        self.not_before = Some(now + backoff(self.troubles, policy));
        let mut again = 0;
        for piece in &mut self.pieces {
            if piece.state == State::Waiting && !piece.is_queued {
                piece.is_queued = true;
                again += 1;
            }
        }
        again
    }
}

/// A batch by its sequence; they lie in its order.
fn find(pieces: &mut VecDeque<Piece>, sequence: i64) -> Option<&mut Piece> {
    let place = pieces
        .binary_search_by_key(&sequence, |piece| piece.base_sequence)
        .ok()?;
    pieces.get_mut(place)
}
