//! Where streams are: asked of the placement driver, for calls that are repeated and for appends that wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::RangeCriteria;
use sbp_types::{Offset, StreamId};

use super::answers::only;
use super::ranges::list_ranges;
use crate::channel::Reroute;
use crate::clock::now;
use crate::config::ReadFrom;
use crate::error::ClientError;
use crate::pool::ConnectionPool;
use crate::pool::routes::Route;
use crate::retry::backoff;
use crate::submission::Submissions;
use crate::submission::gather;

/// How long a placement driver is waited for by those who know where they were sent before.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Streams that are asked for in one request.
const MOST_AT_ONCE: usize = 1_024;

impl ConnectionPool {
    /// Asks the placement driver where a stream is. Where that is known and nobody can be asked for the moment, what is
    /// known stays: the range server may be back before the placement driver is.
    pub(crate) async fn refresh(self: &Arc<Self>, stream: StreamId, deadline: Instant) -> Result<(), ClientError> {
        if self.routes.lock().location(stream, Offset::LATEST).is_none() {
            return self.ask(stream, deadline).await;
        }
        match self.ask(stream, deadline.min(now() + ASK_AGAIN)).await {
            Err(error) if error.is_timeout() || error.is_retriable() => Ok(()),
            answered => answered,
        }
    }

    /// As [`refresh`](Self::refresh), for who appends. While the server that takes the appends is said to be one that was silent a
    /// moment ago, nobody has taken over from it yet, and it is asked again.
    pub(crate) async fn refresh_for_append(
        self: &Arc<Self>,
        stream: StreamId,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let mut asked = 0;
        loop {
            self.refresh(stream, deadline).await?;
            asked += 1;
            let pause = backoff(asked, &self.home().config.retry).min(ASK_AGAIN);
            if !self.is_primary_silent(stream) || now() + pause >= deadline {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask(self: &Arc<Self>, stream: StreamId, deadline: Instant) -> Result<(), ClientError> {
        let criteria = RangeCriteria {
            stream_id: Some(stream),
            range_server: None,
        };
        let left = deadline.saturating_duration_since(now()).max(Duration::from_millis(1));
        // Boxed: calls that are repeated refresh routes, and this is a call.
        let listed = only(Box::pin(list_ranges(self, &[&criteria], left)).await?);
        let ranges = listed.map_err(|error| {
            self.routes.lock().forget(stream);
            error.with_stream(stream)
        })?;
        self.routes.lock().learn(stream, Route::new(&ranges));
        self.set_routed();
        Ok(())
    }

    /// Asks where many streams are. Those that do not exist are told where they are asked for next.
    pub(crate) async fn refresh_all(
        self: &Arc<Self>,
        streams: &[StreamId],
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let of = |&stream: &StreamId| RangeCriteria {
            stream_id: Some(stream),
            range_server: None,
        };
        for part in streams.chunks(MOST_AT_ONCE) {
            let criteria: Vec<_> = part.iter().map(of).collect();
            let left = deadline.saturating_duration_since(now()).max(Duration::from_millis(1));
            let listed = list_ranges(self, &criteria.iter().collect::<Vec<_>>(), left).await?;
            let mut routes = self.routes.lock();
            for (&stream, ranges) in part.iter().zip(listed) {
                match ranges {
                    Ok(ranges) => routes.learn(stream, Route::new(&ranges)),
                    Err(_unknown) => routes.forget(stream),
                }
            }
        }
        self.set_routed();
        Ok(())
    }

    /// Asks where streams are of which reads are to be spread, if nobody has told yet. Where that cannot be told they are read as if they
    /// were not to be spread.
    pub(crate) async fn find_copies(self: &Arc<Self>, streams: impl Iterator<Item = StreamId>, deadline: Instant) {
        if self.home().config.read_from == ReadFrom::Primary {
            return;
        }
        let unknown = self.routes.lock().to_spread(streams);
        if unknown.is_empty() {
            return;
        }
        if let Err(error) = Box::pin(self.refresh_all(&unknown, deadline.min(now() + ASK_AGAIN))).await {
            tracing::debug!(%error, "where streams are is not told: they are read where the client is connected");
        }
    }

    /// Asks where a stream is until it is known, and ends the appends that cannot wait for it.
    async fn find(self: Arc<Self>, stream: StreamId, wait: Duration) {
        tokio::time::sleep(wait).await;
        loop {
            let Some(deadline) = self.reroutes.lock().deadline(stream) else {
                self.reroutes.lock().asking.remove(&stream);
                return;
            };
            let error = match self.refresh_for_append(stream, deadline).await {
                Ok(()) => {
                    let found = self.reroutes.lock().asking.remove(&stream);
                    return self.post_appends(found.unwrap_or_default());
                }
                Err(error) => error,
            };
            // The list was asked for again and again while there was time for the first of those that wait.
            let over = if error.is_timeout() || error.is_retriable() {
                self.reroutes.lock().expired(stream, now().max(deadline))
            } else {
                let all = self.reroutes.lock().asking.remove(&stream);
                all.map(|submissions| submissions.ops).unwrap_or_default()
            };
            for op in over {
                self.home().end_append(op, error.clone().with_stream(stream));
            }
        }
    }
}

impl Reroute for ConnectionPool {
    fn forget(&self, streams: &mut dyn Iterator<Item = StreamId>) {
        if self.is_routed() {
            let mut routes = self.routes.lock();
            streams.for_each(|stream| routes.forget(stream));
        }
    }

    fn knows_places(&self) -> bool {
        self.is_routed()
    }

    fn is_held_elsewhere(&self, stream: StreamId) -> bool {
        if !self.is_routed() {
            return self.home().servers_named() > 1;
        }
        let copies = self.routes.lock().copies(stream, Offset::LATEST);
        copies.is_some_and(|copies| copies > 1)
    }

    fn reroute(self: Arc<Self>, submissions: Submissions, wait: Duration) {
        self.set_routed();
        let Submissions { ops, arena } = submissions;
        for op in ops {
            let places: Vec<usize> = (0..op.entries.len()).collect();
            let parts = gather::split(op, &places, |one, other| one == other);
            // Each counts for itself from now on.
            self.home().budget.add(parts.len().saturating_sub(1), 0);
            for (_, part) in parts {
                let stream = part.entries.first().map(|entry| entry.stream);
                let is_first = {
                    let mut reroutes = self.reroutes.lock();
                    if reroutes.closed {
                        drop(reroutes);
                        self.home().end_append(part, ClientError::closed());
                        continue;
                    }
                    reroutes.wait(part, &arena)
                };
                if let (true, Some(stream)) = (is_first, stream) {
                    self.home().spawn(Arc::clone(&self).find(stream, wait));
                }
            }
        }
    }
}
