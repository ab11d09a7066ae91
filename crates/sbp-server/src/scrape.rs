//! A scrape of a server's metrics, piece by piece.

use sbp_types::StreamId;

use crate::metrics::{self, FAMILIES};
use crate::monitor::Monitor;
use crate::status::Query;

/// Streams in a piece.
const STREAMS: usize = 500;

/// A server's metrics in the text format of OpenMetrics, which Prometheus reads: pieces of some ten kilobytes, each made
/// when it is asked for. Between two of them nothing is kept but the numbers of streams. Making one takes locks of the
/// server for moments.
#[derive(Clone, Debug)]
pub struct Scrape {
    monitor: Monitor,
    left: Left,
}

#[derive(Clone, Debug)]
enum Left {
    Server {
        per_stream: bool,
    },
    Streams {
        ids: Vec<StreamId>,
        family: usize,
        from: usize,
    },
    End,
    Nothing,
}

impl Scrape {
    /// The metrics of the server that `monitor` sees; with `per_stream` the figures of each stream too.
    #[must_use]
    pub fn new(monitor: Monitor, per_stream: bool) -> Self {
        let left = Left::Server { per_stream };
        Self { monitor, left }
    }

    fn streams(ids: Vec<StreamId>, family: usize, from: usize) -> Left {
        match () {
            () if from < ids.len() => Left::Streams { ids, family, from },
            () if family + 1 < FAMILIES && !ids.is_empty() => Left::Streams {
                ids,
                family: family + 1,
                from: 0,
            },
            () => Left::End,
        }
    }
}

impl Iterator for Scrape {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match std::mem::replace(&mut self.left, Left::Nothing) {
            Left::Server { per_stream } => {
                let text = metrics::server(self.monitor.status(&Query::default()));
                let ids = if per_stream {
                    self.monitor.stream_ids()
                } else {
                    Vec::new()
                };
                self.left = Self::streams(ids, 0, 0);
                Some(text)
            }
            Left::Streams { ids, family, from } => {
                let page = ids.iter().skip(from).take(STREAMS).copied().collect::<Vec<_>>();
                let text = metrics::streams(family, self.monitor.stream_rows(&page), from == 0);
                self.left = Self::streams(ids, family, from + STREAMS);
                Some(text)
            }
            Left::End => Some(metrics::end()),
            Left::Nothing => None,
        }
    }
}
