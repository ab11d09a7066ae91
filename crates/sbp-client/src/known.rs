//! Streams that were described, and whether they are still what they were.
//!
//! A server that comes back may have lost its data, and given numbers and names anew. So what was described counts as
//! long as no connection was lost or made since; then whoever has time to ask, asks again, and compares identities.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sbp_messages::Stream;
use sbp_types::StreamId;

/// Streams that were described. Names can be given to another stream later, so a stream that is not found is looked up
/// anew.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) by_name: HashMap<Arc<str>, Arc<Stream>>,
    pub(crate) by_id: HashMap<StreamId, Seen>,
    /// Streams that are being confirmed beside the calls that use them.
    pub(crate) asking: HashSet<StreamId>,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) stream: Arc<Stream>,
    /// The era of the connection that it was described over.
    era: Option<u64>,
}

impl Known {
    pub(crate) fn remember(&mut self, stream: &Arc<Stream>, era: Option<u64>) {
        let seen = Seen {
            stream: Arc::clone(stream),
            era,
        };
        let before = self.by_id.insert(stream.stream_id, seen).map(|seen| seen.stream);
        if let Some(before) = before.filter(|before| before.name != stream.name) {
            self.by_name.remove(before.name.as_str());
        }
        if !stream.name.is_empty() {
            self.by_name.insert(Arc::from(stream.name.as_str()), Arc::clone(stream));
        }
    }

    pub(crate) fn is_current(&self, stream: StreamId, era: Option<u64>) -> bool {
        self.by_id.get(&stream).is_some_and(|seen| {
            // What has no identity cannot be compared.
            seen.stream.identity.is_none() || (era.is_some() && seen.era == era)
        })
    }
}
