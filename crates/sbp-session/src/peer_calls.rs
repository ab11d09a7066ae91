//! The requests that the peer has sent.

use sbp_frame::CallId;

use crate::id_table::IdTable;

#[derive(Debug)]
struct PeerCall {
    /// Bytes of the request's frame.
    bytes: usize,
    waiting: bool,
}

/// The peer's requests that are not completely answered, with the sums that are limited.
#[derive(Debug)]
pub(crate) struct PeerCalls {
    table: IdTable<PeerCall>,
    waiting: usize,
    /// Bytes of the requests that do not wait.
    bytes: usize,
    /// The highest id of a request that was started; 0 for none.
    highest: u32,
}

impl PeerCalls {
    pub(crate) fn new() -> Self {
        Self {
            table: IdTable::new(),
            waiting: 0,
            bytes: 0,
            highest: 0,
        }
    }

    pub(crate) fn contains(&self, id: CallId) -> bool {
        self.table.get(id).is_some()
    }

    /// Adds a request that is started.
    pub(crate) fn insert(&mut self, id: CallId, bytes: usize) {
        self.note_started(id);
        self.bytes += bytes;
        self.table.insert(id, PeerCall { bytes, waiting: false });
    }

    /// Notes that a request was started; it need not be [inserted](Self::insert) if it is answered at once.
    pub(crate) fn note_started(&mut self, id: CallId) {
        self.highest = self.highest.max(id.raw());
    }

    /// Removes a request that is answered; false if it was not in flight.
    pub(crate) fn remove(&mut self, id: CallId) -> bool {
        let Some(call) = self.table.remove(id) else {
            return false;
        };
        if call.waiting {
            self.waiting -= 1;
        } else {
            self.bytes -= call.bytes;
        }
        true
    }

    /// Marks a request as waiting: from now on it counts only against the limit of waiting requests. False if `limit`
    /// requests wait already, or if it is not in flight.
    pub(crate) fn mark_waiting(&mut self, id: CallId, limit: usize) -> bool {
        match self.table.get_mut(id) {
            None => false,
            Some(call) if call.waiting => true,
            Some(_) if self.waiting >= limit => false,
            Some(call) => {
                call.waiting = true;
                self.bytes -= call.bytes;
                self.waiting += 1;
                true
            }
        }
    }

    /// Frees the memory of an empty table.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The number of requests in flight, including waiting ones.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The number of requests in flight that do not wait.
    pub(crate) fn active(&self) -> usize {
        self.table.len() - self.waiting
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn highest_started(&self) -> u32 {
        self.highest
    }
}
