//! Where a stream ends whose last range other servers hold too: its primary says so once enough of them have said that they
//! are not fenced. Else the range may be sealed, and the next one grow elsewhere.

use std::time::Instant;

use sbp_replication::{EndTold, Rules};
use sbp_types::{Offset, RangeKey, ServerId, StreamId};
use smallvec::SmallVec;

use crate::range::copies::EndTicket;
use crate::range::notifications::Notifications;
use crate::range::ranges::Ranges;

impl Ranges {
    /// Asks the other servers whether this one may say where a stream ends. `None` if that needs no question, because this
    /// server needs nobody for it, or cannot say it in any case. Whoever calls this [finishes](super::super::RangeHub::finish).
    pub(crate) fn ask_end(&mut self, stream: StreamId) -> Option<EndTicket> {
        let last = self.table.stream(stream)?.last()?;
        let replica = last.replica.as_deref()?;
        if !last.knows_its_end() || replica.range().quorum.acks() == 1 {
            return None;
        }
        let key = last.key(stream);
        let (ticket, begins) = self.questions.ask(key, Instant::now());
        if begins {
            self.ask_others(key);
        }
        Some(ticket)
    }

    /// Whether an offset lies behind the end of a stream as far as this server knows it.
    pub(crate) fn is_behind_end(&self, stream: StreamId, offset: Offset) -> bool {
        self.table
            .stream(stream)
            .is_some_and(|stream| offset > stream.confirmed_end())
    }

    /// What the reader is told who asked.
    pub(crate) fn end_told(&self, ticket: EndTicket) -> EndTold {
        self.questions.told(ticket)
    }

    fn ask_others(&mut self, key: RangeKey) {
        let (Some(replica), Some((number, question))) = (self.table.replica(key), self.questions.under_way(key)) else {
            return;
        };
        let asked: SmallVec<[ServerId; 2]> = question.asks(replica).collect();
        for server in asked {
            self.outboxes.ask(server, key, number);
        }
    }

    /// The connection to a server is gone, and with it what it was asked: it is asked again.
    pub(super) fn ask_again(&mut self, server: ServerId, key: RangeKey) {
        let (Some(replica), Some((number, question))) = (self.table.replica(key), self.questions.under_way(key)) else {
            return;
        };
        if question.asks(replica).any(|asked| asked == server) {
            self.outboxes.ask(server, key, number);
        }
    }

    /// Answers the question about a range that is under way, if it can be answered.
    pub(super) fn settle_question(&mut self, key: RangeKey, notifications: &mut Notifications) {
        while let Some((_, question)) = self.questions.under_way(key) {
            let told = match self.table.replica(key) {
                Some(replica) => question.answer(replica, replica.server(), Rules::default()),
                None => EndTold::Elsewhere,
            };
            if told == EndTold::NotYet {
                return;
            }
            self.tell_end(key, told, notifications);
        }
    }

    /// Sends the readers away whose questions the other servers have not answered in time.
    pub(super) fn end_late_questions(&mut self, notifications: &mut Notifications) {
        for key in self.questions.late(Instant::now()) {
            self.tell_end(key, EndTold::Elsewhere, notifications);
        }
    }

    fn tell_end(&mut self, key: RangeKey, told: EndTold, notifications: &mut Notifications) {
        let next = self.questions.tell(key, told, Instant::now());
        self.wake(key.stream, notifications);
        if next.is_some() {
            self.ask_others(key);
        }
    }
}
