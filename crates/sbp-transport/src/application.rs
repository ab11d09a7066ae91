//! What a connection does with its events.

use std::time::Instant;

use sbp_wire::Endpoint;

/// Why a connection of this application has ended.
pub type ReasonOf<A> = <<A as Application>::Endpoint as Endpoint>::Reason;

/// What happens on a connection of this application.
type EventOf<A> = <<A as Application>::Endpoint as Endpoint>::Event;

/// The layer above a connection: a client's calls or a server's handlers.
///
/// Every method runs inside the connection's task and must not block. In one turn the driver hands over what was
/// received, then the commands, and calls [`Application::finish_turn`] once; only then does it write. So everything
/// that a turn sends leaves in one write, and everything that it completes can be reported in one wake-up.
pub trait Application: Sized + Send + 'static {
    /// This end of the connection: what it speaks.
    type Endpoint: Endpoint;

    /// What other tasks and threads ask of this connection, through its [`crate::Mailbox`].
    type Command: Send + 'static;

    /// Carries out a command. After the connection has closed, the commands that were left come too: sending then
    /// fails, and their callers can be told.
    fn handle_command(&mut self, session: &mut Self::Endpoint, now: Instant, command: Self::Command);

    /// Takes an event of the session.
    fn handle_event(&mut self, session: &mut Self::Endpoint, now: Instant, event: EventOf<Self>);

    /// Ends a turn: the place to send what was gathered and to report what was completed.
    fn finish_turn(&mut self, session: &mut Self::Endpoint, now: Instant);

    /// When [`Application::handle_timeout`] is to be called next; asked at the end of each turn.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time asked for has come.
    fn handle_timeout(&mut self, session: &mut Self::Endpoint, now: Instant) {
        let _ = (session, now);
    }

    /// Bytes that are held for the peer beside those that the session knows of.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether the peer uses the connection for what it is there for; see [`crate::drive_until_settled`].
    fn is_settled(&self) -> bool {
        true
    }

    /// The connection is over; nothing is called after this.
    fn handle_closed(&mut self, reason: &ReasonOf<Self>);
}
