//! Has sealed ranges copied to servers that lack them.

use std::time::Instant;

use sbp_messages::ErrorCode;
use sbp_types::{Epoch, RangeKey, ServerId};

use super::{Event, Worker};
use crate::placement::apply::Command;
use crate::placement::copies::{Copy, CopyStep, is_news};
use crate::placement::request::{Outcomes, Task};
use crate::refusal::Refusal;

impl Worker {
    /// Begins the copies that are due.
    pub(super) fn copy_what_is_due(&mut self, now: Instant) {
        let notes_copies = self.store.notes_copies();
        let due = self.copies.due(&self.state, &self.registry.lock(), notes_copies, now);
        self.copy_counts.note(self.copies.counts());
        for (copy, step) in due {
            let Copy { key, to } = copy;
            match step {
                CopyStep::Add => {
                    tracing::info!(range = %key, server = %to, "a sealed range is copied to another server");
                    self.note_copy(copy, Command::AddCopy(copy));
                }
                CopyStep::Release { away } => {
                    tracing::info!(range = %key, ?away, "servers are not counted on any more for a sealed range: others have it");
                    let release = Command::ReleaseCopies {
                        key,
                        away,
                        notes_copies,
                    };
                    self.note_copy(copy, release);
                }
                CopyStep::Replace => {
                    tracing::warn!(range = %key, server = %to, "what a server lacks of a sealed range cannot be put back there: it removes its copy, and another one is made");
                    self.note_copy(copy, Command::ReplaceCopy(copy));
                }
                CopyStep::Send { source, epoch, end } => {
                    let done = self.promise(move |sent| Event::Copied(copy, sent));
                    match self.reach(source) {
                        Ok(range_server) => range_server.write_back(key, epoch, &[to], end, done),
                        Err(refusal) => done(Err(refusal)),
                    }
                }
            }
        }
    }

    /// A server has all of a range, or the order to send it was not carried out within the time of a call. Its source goes on
    /// with it, and says so when it is asked again.
    pub(super) fn handle_copied(&mut self, copy: Copy, sent: Result<(), Refusal>) {
        if let Err(refusal) = sent {
            tracing::debug!(range = %copy.key, server = %copy.to, message = refusal.message, "a sealed range is not copied yet");
            let now = Instant::now();
            return match refusal.code {
                // What its disk has lost cannot be put back there now.
                ErrorCode::RS_DATA_CORRUPTED => self.copies.is_refused(copy, now),
                _ => self.copies.ended(copy, false, now),
            };
        }
        self.note_copy(copy, Command::FinishCopy(copy));
    }

    /// A server lacks some of sealed ranges that it counted as having all of: it is sent that again.
    pub(super) fn handle_lacks(&mut self, server: ServerId, ranges: &[(RangeKey, Epoch)]) {
        for (key, epoch) in ranges.iter().copied() {
            // It may have been told twice before the first was decided.
            if is_news(&self.state, server, key, epoch) {
                tracing::warn!(range = %key, %server, "a server lacks some of a sealed range that it had: it is sent that again");
                self.note_copy(Copy { key, to: server }, Command::LacksSome(Copy { key, to: server }));
            }
        }
    }

    /// Has a change of who has a sealed range made durable, in its turn among the operations on the stream.
    fn note_copy(&mut self, copy: Copy, command: Command) {
        let events = self.events.clone();
        let done = Box::new(move |noted: Result<Outcomes, Refusal>| {
            let noted = noted.and_then(|outcomes| outcomes.into_iter().try_for_each(|outcome| outcome.map(drop)));
            // The receiver has ended if the server is shutting down.
            let _stopped = events.send(Event::CopyNoted(copy, noted));
        });
        self.operations.admit(done, vec![Ok(Task::Apply(command))]);
    }

    pub(super) fn copy_noted(&mut self, copy: Copy, noted: &Result<(), Refusal>) {
        let now = Instant::now();
        match noted {
            Ok(()) => {
                let is_complete = |copy: Copy| {
                    let range = self.state.range(copy.key);
                    range.is_some_and(|range| range.complete().any(|server| server == copy.to))
                };
                if is_complete(copy) {
                    tracing::info!(range = %copy.key, server = %copy.to, "a server has all of a sealed range");
                }
                self.copies.ended(copy, true, now);
                self.copy_what_is_due(now);
            }
            Err(refusal) => {
                tracing::warn!(range = %copy.key, server = %copy.to, message = refusal.message, "who has a sealed range is not written down");
                self.copies.ended(copy, false, now);
            }
        }
    }
}
