//! Servers that somebody could not reach, or wants a stream to leave: the next ranges of the stream are better without them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_types::{ServerId, StreamId};

/// For how long a server is avoided.
const AVOIDED_FOR: Duration = Duration::from_mins(5);

/// The servers to avoid, by stream.
#[derive(Debug, Default)]
pub(super) struct Avoided {
    streams: HashMap<StreamId, (Arc<[ServerId]>, Instant)>,
}

impl Avoided {
    /// The stream is better without these servers. The last word about a stream counts.
    pub(super) fn note(&mut self, stream: StreamId, servers: &Arc<[ServerId]>, now: Instant) {
        if servers.is_empty() {
            return;
        }
        self.streams
            .retain(|_, (_, since)| now.saturating_duration_since(*since) < AVOIDED_FOR);
        self.streams.insert(stream, (Arc::clone(servers), now));
    }

    /// Whether the stream is better without this server.
    pub(super) fn has(&self, stream: StreamId, server: ServerId, now: Instant) -> bool {
        let noted = self.streams.get(&stream);
        noted.is_some_and(|(servers, since)| {
            servers.contains(&server) && now.saturating_duration_since(*since) < AVOIDED_FOR
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_avoided_for_five_minutes_by_the_stream_that_was_named() {
        let now = Instant::now();
        let mut avoided = Avoided::default();
        let (s, t, a, b) = (StreamId(1), StreamId(2), ServerId(1), ServerId(2));
        avoided.note(s, &Arc::from([a]), now);
        avoided.note(s, &Arc::default(), now);
        assert!(avoided.has(s, a, now) && !avoided.has(s, b, now) && !avoided.has(t, a, now));
        assert!(avoided.has(s, a, now + Duration::from_secs(299)));
        assert!(!avoided.has(s, a, now + Duration::from_secs(300)));
        avoided.note(s, &Arc::from([b]), now);
        assert!(avoided.has(s, b, now) && !avoided.has(s, a, now));
        avoided.note(t, &Arc::from([a]), now + AVOIDED_FOR);
        assert_eq!(avoided.streams.len(), 1, "what is over is forgotten");
    }
}
