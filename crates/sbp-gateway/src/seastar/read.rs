//! Records that clients read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use sbp_client::{FetchEntry, FetchOptions, Fetched, Position};
use sbp_peers::seastar::{Incoming, Stream as Messages};
use sbp_types::{Offset, StreamId};
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::append::taken;
use super::{Failed, Shared, coding};
use crate::records::positions;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The longest wait; longer ones are taken for it.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Bytes of one answer, about.
const MOST_BYTES: u32 = 32 << 20;
/// Bytes of one message of a tail, about.
const TAIL_BYTES: u32 = 1 << 20;

impl Shared {
    pub(super) async fn positions(&self, mut arguments: Bytes) -> Result<Bytes, Failed> {
        let name = coding::text(&mut arguments)?;
        let held = positions(&self.client, self.stream(&name).await?.stream_id).await?;
        let mut bytes = Vec::with_capacity(16);
        bytes.put_i64_le(held.earliest.0);
        bytes.put_i64_le(held.latest.0);
        Ok(bytes.into())
    }

    /// Records from an offset on: at once if there are any, else when there are, or the time is over.
    pub(super) async fn fetch(&self, mut arguments: Bytes) -> Result<Bytes, Failed> {
        let name = coding::text(&mut arguments)?;
        let offset = arguments.try_get_i64_le()?;
        let most = arguments.try_get_u32_le()?.clamp(1, MOST_BYTES);
        let wait = Duration::from_millis(arguments.try_get_u32_le()?.into());
        let stream = self.stream(&name).await?.stream_id;
        let from = self.place(stream, offset).await?;
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        let fetched = self.fetch_until(stream, from, most, Some(deadline)).await?;
        let mut bytes = Vec::new();
        bytes.put_i64_le(0);
        bytes.put_i64_le(fetched.next_offset.max(from).0);
        bytes.put_i64_le(fetched.high_watermark.0);
        let first = coding::put_records(&fetched.batches, &mut bytes)?.unwrap_or(from.0);
        if let Some(base) = bytes.get_mut(..8) {
            base.copy_from_slice(&first.to_le_bytes());
        }
        Ok(bytes.into())
    }

    /// Sends records on a stream of messages, as they come, until the client cuts or ends it.
    pub(super) async fn tail(self: &Arc<Self>, mut arguments: Bytes, incoming: &Incoming) -> Result<Bytes, Failed> {
        let name = coding::text(&mut arguments)?;
        let offset = arguments.try_get_i64_le()?;
        let id = arguments.try_get_u64_le()?;
        let stream = self.stream(&name).await?.stream_id;
        let from = self.place(stream, offset).await?;
        let messages = taken(incoming, id)?;
        let shared = Arc::clone(self);
        self.client.runtime().spawn(async move {
            let ended = async {
                // A client that has nothing more to say has ended the tail.
                while let Ok(Some(_)) = messages.next().await {}
            };
            let failed = tokio::select! {
                () = ended => None,
                failed = shared.send_all(stream, from, &messages) => failed.err(),
            };
            match failed {
                // Whoever reads sees its end.
                None => drop(messages.end().await),
                Some(failed) => {
                    tracing::warn!(?failed, "the tail of a client of Seastar RPC is cut");
                    messages.abort();
                }
            }
        });
        Ok(Bytes::copy_from_slice(&id.to_le_bytes()))
    }

    async fn send_all(&self, stream: StreamId, mut from: Offset, messages: &Messages) -> Result<(), Failed> {
        loop {
            let fetched = self.fetch_until(stream, from, TAIL_BYTES, None).await?;
            let mut bytes = Vec::new();
            bytes.put_i64_le(0);
            let Some(first) = coding::put_records(&fetched.batches, &mut bytes)? else {
                from = fetched.next_offset.max(from);
                continue;
            };
            if let Some(base) = bytes.get_mut(..8) {
                base.copy_from_slice(&first.to_le_bytes());
            }
            let sent = messages.send(bytes.into()).await;
            sent.map_err(|error| Failed::Arguments(error.to_string()))?;
            from = fetched.next_offset.max(from);
        }
    }

    /// Where it is read from.
    async fn place(&self, stream: StreamId, offset: i64) -> Result<Offset, Failed> {
        let held = match offset {
            LATEST | EARLIEST => positions(&self.client, stream).await?,
            0.. => return Ok(Offset(offset)),
            _ => {
                let what = format!("{offset} is no offset: -1 is the end, -2 the first record that is kept");
                return Err(Failed::Arguments(what));
            }
        };
        Ok(if offset == LATEST { held.latest } else { held.earliest })
    }

    /// Records from an offset on, once there are any; without a deadline it waits for ever.
    async fn fetch_until(
        &self,
        stream: StreamId,
        from: Offset,
        most: u32,
        deadline: Option<Instant>,
    ) -> Result<Fetched, Failed> {
        let woken = Arc::new(Notify::new());
        loop {
            let entry = FetchEntry {
                stream,
                from: Position::At(from),
                end: None,
                batch_max_bytes: most,
            };
            let fetched = self.client.fetch_one(entry, FetchOptions::default()).await?;
            let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if !fetched.batches.is_empty() || is_over {
                return Ok(fetched);
            }
            self.watch.wake(&woken, stream, from);
            match deadline {
                // Its time is over: once more, for what has come meanwhile.
                Some(deadline) => drop(timeout_at(deadline.into(), woken.notified()).await),
                None => woken.notified().await,
            }
        }
    }
}
