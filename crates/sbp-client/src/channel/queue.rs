//! What waits in a channel for a connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_transport::ChannelQueue;

use super::command::Command;
use crate::features::Features;
use crate::submission::Submissions;

/// Work that no connection has. Appends stay in order across connections: the server is to see those of a stream in the
/// order they were submitted.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Appends, in order.
    pub(super) appends: VecDeque<Submissions>,
    /// How many at the front of `appends` came back from a connection: more that come back go behind them.
    returned: usize,
    /// Everything else.
    pub(super) others: Vec<Command>,
    /// Connections that go away and still have appends in flight, by their generation. No append goes out on another one
    /// before they are over.
    draining: Vec<u64>,
    /// When deadlines are looked at next, if that is known.
    looked_at: Option<Instant>,
}

/// How late a deadline may be noticed while there is no connection: what runs out of time at nearly the same moment is gone
/// through together, however much waits.
const COARSENESS: Duration = Duration::from_millis(50);

impl ChannelQueue for Queue {
    type Command = Command;
    /// What was agreed with the peer.
    type Learned = Option<Arc<Features>>;

    fn wants_connection(&mut self) -> bool {
        !self.others.is_empty() || (!self.appends.is_empty() && self.draining.is_empty())
    }

    fn take(&mut self) -> Vec<Command> {
        let mut commands = std::mem::take(&mut self.others);
        if self.draining.is_empty() {
            commands.extend(self.take_appends().into_iter().map(Command::Appends));
        }
        commands
    }

    fn put_back(&mut self, commands: Vec<Command>) {
        for command in commands {
            self.add(command);
        }
    }
}

impl Queue {
    /// Adds a command behind all others. Whether deadlines have to be looked at earlier than planned for it.
    pub(super) fn push(&mut self, command: Command, now: Instant) -> bool {
        let is_urgent = self.is_urgent(earliest(&command), now);
        self.add(command);
        is_urgent
    }

    /// Adds appends that came back from a connection, before all that came later. As [`Self::push`].
    pub(super) fn push_returned(&mut self, submissions: Submissions, now: Instant) -> bool {
        let is_urgent = self.is_urgent(earliest_of(&submissions), now);
        let place = self.returned.min(self.appends.len());
        self.appends.insert(place, submissions);
        self.returned = place + 1;
        is_urgent
    }

    fn add(&mut self, command: Command) {
        match command {
            Command::Appends(submissions) => self.appends.push_back(submissions),
            other => self.others.push(other),
        }
    }

    fn is_urgent(&self, deadline: Option<Instant>, now: Instant) -> bool {
        deadline.is_some_and(|deadline| self.looked_at.is_none_or(|at| deadline.max(now + COARSENESS) < at))
    }

    /// Takes out all appends.
    pub(super) fn take_appends(&mut self) -> VecDeque<Submissions> {
        self.returned = 0;
        std::mem::take(&mut self.appends)
    }

    /// A connection goes away and still has appends in flight.
    pub(super) fn drains(&mut self, generation: u64) {
        self.draining.push(generation);
    }

    /// A connection has no appends in flight any more.
    pub(super) fn drained(&mut self, generation: u64) {
        self.draining.retain(|&draining| draining != generation);
    }

    /// Whether appends wait for those of a connection that goes away.
    pub(super) fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Takes out what has run out of time, and says when to look at deadlines again.
    pub(super) fn take_overdue(&mut self, now: Instant) -> (Vec<Command>, Option<Instant>) {
        let mut expired = Submissions::new();
        for submissions in &mut self.appends {
            expired
                .ops
                .extend(submissions.ops.extract_if(.., |op| op.deadline <= now));
        }
        let returned = self.appends.iter().take(self.returned);
        self.returned -= returned.filter(|waiting| waiting.is_empty()).count();
        self.appends.retain(|submissions| !submissions.is_empty());
        let late = |command: &mut Command| command.deadline().is_some_and(|at| at <= now);
        let mut overdue: Vec<_> = self.others.extract_if(.., late).collect();
        if !expired.is_empty() {
            overdue.push(Command::Appends(expired));
        }
        let appends = self.appends.iter().filter_map(earliest_of);
        let others = self.others.iter().filter_map(Command::deadline);
        self.looked_at = appends.chain(others).min().map(|at| at.max(now + COARSENESS));
        (overdue, self.looked_at)
    }
}

/// The earliest deadline of appends.
fn earliest_of(submissions: &Submissions) -> Option<Instant> {
    submissions.ops.iter().map(|op| op.deadline).min()
}

/// The earliest deadline of a command.
fn earliest(command: &Command) -> Option<Instant> {
    match command {
        Command::Appends(submissions) => earliest_of(submissions),
        other => other.deadline(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::sync::oneshot;

    use super::{COARSENESS, Command, Queue};
    use crate::channel::command::Ping;

    fn ping(deadline: Instant) -> Command {
        let (reply, _) = oneshot::channel();
        Command::Ping(Box::new(Ping { deadline, reply }))
    }

    #[test]
    fn deadlines_are_looked_at_when_the_first_is_due_and_those_about_the_same_time_together() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut queue = Queue::default();
        assert!(queue.push(ping(after(10)), now), "nobody has looked yet");
        let (overdue, next) = queue.take_overdue(now);
        assert_eq!((overdue.len(), next), (0, Some(after(10))));
        assert!(!queue.push(ping(after(20)), now), "looked at in time anyway");
        assert!(queue.push(ping(after(5)), now));
        for late in [3, 2, 1] {
            queue.push(ping(now + COARSENESS * late / 10), now);
        }
        let (overdue, next) = queue.take_overdue(now);
        assert_eq!((overdue.len(), next), (0, Some(now + COARSENESS)));
        assert!(!queue.push(ping(now), now), "it goes with the others");
        let (overdue, next) = queue.take_overdue(now + COARSENESS);
        assert_eq!((overdue.len(), next), (4, Some(after(5))));
        let (overdue, next) = queue.take_overdue(after(60));
        assert_eq!((overdue.len(), next), (3, None));
    }
}
