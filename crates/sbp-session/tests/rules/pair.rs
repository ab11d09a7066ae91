//! Two sessions and a wire between them, with a clock that only tests move.

use std::time::{Duration, Instant};

use bytes::BufMut;
use sbp_frame::OpCode;
use sbp_session::{Event, Outgoing, Session, SessionConfig};

use crate::script::Seen;

/// A client and a server. Bytes move only in [`Pair::carry`], time only in [`Pair::pass`].
pub(crate) struct Pair {
    pub(crate) client: Session,
    pub(crate) server: Session,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let client = Session::new(SessionConfig::client(), now);
        let server = Session::new(SessionConfig::server(), now);
        Self { client, server, now }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// Moves bytes both ways until none is left or nobody reads.
    pub(crate) fn carry(&mut self) {
        while move_bytes(&mut self.client, &mut self.server, self.now, usize::MAX)
            | move_bytes(&mut self.server, &mut self.client, self.now, usize::MAX)
        {}
    }

    pub(crate) fn call(&mut self, opcode: OpCode, user: u64) -> sbp_frame::CallId {
        let request = Outgoing {
            opcode,
            header: b"ask",
            payload: &[],
            user,
            deadline: None,
            receive_charge: 0,
        };
        self.client.send_request(self.now, request).expect("room for a request")
    }
}

/// Moves at most `most` bytes as far as the other side reads. Whether anything moved.
pub(crate) fn move_bytes(from: &mut Session, to: &mut Session, now: Instant, most: usize) -> bool {
    let mut moved = false;
    let mut left = most;
    while left > 0 && from.transmit_len() > 0 && to.wants_read() {
        let mut slices = [std::io::IoSlice::new(&[]); 1];
        from.transmit(&mut slices);
        let mut buffer = to.recv_buffer();
        let count = slices[0].len().min(buffer.remaining_mut()).min(left);
        left -= count;
        buffer.put_slice(&slices[0][..count]);
        to.handle_received(count, now);
        from.handle_written(count, now);
        moved = true;
    }
    moved
}

/// Everything that a session has to tell.
pub(crate) fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

/// The same, in words that compare.
pub(crate) fn seen(session: &mut Session) -> Vec<Seen> {
    events(session).into_iter().map(Seen::from).collect()
}
