//! One end of a connection, as its driver sees it.

use std::fmt;
use std::io::{self, IoSlice};
use std::time::Instant;

use bytes::{BytesMut, buf::Limit};

/// One end of a connection as a state machine: bytes and the time come in as arguments; bytes, events and the next deadline
/// are polled out.
///
/// This is what a driver calls, and no more; what an application calls are methods of the type itself. Methods named
/// `handle_*` take what has happened, `poll_*` return what is due. None blocks or reads a clock.
///
/// A driver's turn:
///
/// 1. read into [`Self::recv_buffer`] while [`Self::wants_read`], then [`Self::handle_received`]; [`Self::handle_eof`] at the
///    end; [`Self::handle_timeout`] when [`Self::poll_timeout`] has passed;
/// 2. take every event with [`Self::poll_event`];
/// 3. write [`Self::transmit`], then [`Self::handle_written`];
/// 4. end when [`Self::is_closed`].
pub trait Endpoint: Send + 'static {
    /// What happens on the connection.
    type Event;
    /// Why it has ended.
    type Reason: Reason;

    /// The buffer to read the next bytes into, which always has room. [`Self::handle_received`] is called with the number of
    /// bytes before any other method. The room grows with the bytes received, not with a length that a peer claims.
    fn recv_buffer(&mut self) -> Limit<&mut BytesMut>;

    /// Whether to read now. False at a limit, and when the connection is closing.
    fn wants_read(&self) -> bool;

    /// `count` bytes were read into [`Self::recv_buffer`].
    fn handle_received(&mut self, count: usize, now: Instant);

    /// The peer has closed its side.
    fn handle_eof(&mut self, now: Instant);

    /// There is nothing to read now.
    fn note_nothing_to_read(&mut self) {}

    /// Whether part of a frame has been received.
    fn is_mid_frame(&self) -> bool;

    /// Frames received since the beginning.
    fn frames_in(&self) -> u64;

    /// Fills `slices` with the bytes to be written next, and returns how many were set.
    fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize;

    /// The number of bytes that wait to be written.
    fn transmit_len(&self) -> usize;

    /// `count` of the bytes that [`Self::transmit`] returned were written.
    fn handle_written(&mut self, count: usize, now: Instant);

    /// Bytes queued since the beginning.
    fn bytes_out(&self) -> u64;

    /// Sets the time, which counts for what is queued next. All `handle_*` methods do it too.
    fn note_time(&mut self, now: Instant);

    /// When to call [`Self::handle_timeout`], if nothing else happens before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what is due at `now`. Calling it too early does no harm.
    fn handle_timeout(&mut self, now: Instant);

    /// The next event. It is called until it returns `None`.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Bytes that this connection holds: requests that are not yet answered, answers that are not yet written, and the
    /// received part of the next frame.
    fn held_bytes(&self) -> usize;

    /// Says whether memory is short and this connection has more than its share: it then begins no further request of its
    /// peer.
    fn set_tight(&mut self, tight: bool, now: Instant);

    /// Whether memory is short; see [`Self::set_tight`].
    fn is_tight(&self) -> bool;

    /// The number of the peer's requests in flight, without those that only wait for something to happen.
    fn peer_calls(&self) -> usize;

    /// Whether who the peer is is known, or was never asked.
    fn is_authenticated(&self) -> bool;

    /// The socket has failed: nothing more can be read or written.
    fn handle_transport_error(&mut self, error: io::Error, now: Instant);

    /// Closes the connection: queued bytes are still written, calls in flight fail.
    fn close(&mut self);

    /// Whether the connection is over and its socket can be closed.
    fn is_closed(&self) -> bool;

    /// Why the connection is closed, once that is decided.
    fn close_reason(&self) -> Option<&Self::Reason>;
}

/// Why a connection has ended.
pub trait Reason: Clone + fmt::Debug + fmt::Display + Send + 'static {
    /// This side closed it.
    fn local() -> Self;

    /// Whether the peer may be there still and have bytes of ours to read, so that the socket is read for a while before it
    /// is closed: a reset would take those bytes back.
    fn lingers(&self) -> bool;

    /// Whether the connection ended in order: because this side wanted it, or because one side went away and everything was
    /// finished.
    fn is_orderly(&self) -> bool;

    /// Whether the peer began with TLS, and this side has none.
    fn is_tls(&self) -> bool {
        false
    }
}
