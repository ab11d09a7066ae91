//! What becomes of requests when this placement driver does not lead its cluster any more.
//!
//! What was begun may have been carried out, or may yet be by whoever leads next: whoever asked for it is told so, and asks
//! the new leader. What was not begun certainly did nothing.

use std::sync::mpsc;

use sbp_messages::ErrorCode;

use super::{Event, Staged, Worker};
use crate::refusal::Refusal;

impl Worker {
    /// Gives up everything that is under way, and from now on everything that comes.
    pub(super) fn give_up(&mut self) {
        self.is_deposed = true;
        self.staged = Staged::default();
        self.early.clear();
        self.waiting.clear();
        self.timers.clear();
        self.next_look = None;
        let message = "this placement driver ceased to lead its cluster before it could say what became of the request, which \
                       may have been carried out: ask again, and whoever leads now says how things are";
        self.operations
            .give_up(&Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, message));
    }

    /// Refuses what came after that. Answers of range servers find nobody who waits for them.
    pub(super) fn turn_away(&mut self, event: Event) {
        if let Event::Job(job) = event {
            (job.done)(Err(Refusal::not_leader_any_more()));
        }
    }

    /// Ends, after everybody who waits has been told.
    pub(super) fn leave(mut self, inbox: &mpsc::Receiver<Event>) {
        self.give_up();
        // Nobody can send any more: the sender was taken away first.
        for event in inbox.try_iter() {
            self.turn_away(event);
        }
    }
}
