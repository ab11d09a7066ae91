//! Records that clients append.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sbp_client::{Ack, AppendOptions, ClientError, Records};
use sbp_peers::seastar::{Incoming, Stream as Messages};
use sbp_record::{RecordsBuilder, WriterStamp};
use sbp_types::{StreamId, WriterId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::{Failed, Shared, coding};
use crate::appends::Appended;

/// Batches of one stream of messages that are on their way.
const IN_FLIGHT: usize = 64;

/// Takes the appends of a client in their order, until it is gone. Their answers may overtake each other.
pub(super) async fn append_all(shared: Arc<Shared>, mut calls: UnboundedReceiver<Incoming>) {
    let mut waiting = JoinSet::new();
    while let Some(incoming) = calls.recv().await {
        while waiting.try_join_next().is_some() {}
        let appended = shared.append(incoming.payload.clone()).await;
        waiting.spawn(async move {
            let reply = match appended {
                Ok((appended, count)) => appended
                    .await
                    .map_err(Failed::from)
                    .map(|ack| placed(&ack, count, true)),
                Err(failed) => Err(failed),
            };
            if incoming.verb == super::APPEND {
                return incoming.reply(reply.map_err(Failed::exception));
            }
            if let Err(failed) = reply {
                tracing::warn!(
                    ?failed,
                    "what a client of Seastar RPC has appended without waiting is not stored"
                );
            }
        });
    }
    // The client has gone; what it asked for is done.
    while waiting.join_next().await.is_some() {}
}

/// Where records are: the first one, and the one behind the last; -1 where nobody remembers.
fn placed(ack: &Ack, count: u32, with_duplicate: bool) -> Bytes {
    let base = ack.base_offset.map_or(-1, |base| base.0);
    let next = ack
        .base_offset
        .map_or(-1, |base| base.0.saturating_add(i64::from(count)));
    let mut bytes = Vec::with_capacity(17);
    bytes.put_i64_le(base);
    bytes.put_i64_le(next);
    if with_duplicate {
        bytes.put_u8(u8::from(ack.duplicate));
    }
    bytes.into()
}

impl Shared {
    /// Hands records over. Their place behind those before is settled when this returns.
    async fn append(&self, mut arguments: Bytes) -> Result<(Appended, u32), Failed> {
        let name = coding::text(&mut arguments)?;
        let (records, count) = coding::records(&mut arguments)?;
        let stamp = match arguments.is_empty() {
            true => None,
            false => Some(WriterStamp {
                id: WriterId {
                    high: arguments.try_get_u64()?,
                    low: arguments.try_get_u64()?,
                },
                epoch: arguments.try_get_i64_le()?,
                base_sequence: arguments.try_get_i64_le()?,
            }),
        };
        let stream = self.stream(&name).await?.stream_id;
        if let Some(stamp) = stamp {
            // One at a time: a batch that overtook the one before it would be refused for the gap between them.
            let ack = self.append_numbered(stream, records, count, stamp).await?;
            return Ok((Box::pin(std::future::ready(Ok(ack))), count));
        }
        self.appends.ready(stream).await;
        Ok((self.appends.append(stream, records), count))
    }

    /// Appends records as a writer that numbers its batches itself: one that was stored before is not stored again.
    async fn append_numbered(
        &self,
        stream: StreamId,
        mut records: RecordsBuilder,
        count: u32,
        stamp: WriterStamp,
    ) -> Result<Ack, ClientError> {
        let options = AppendOptions::default();
        let mut encode = options.encode_options(stream);
        encode.writer = Some(stamp);
        let mut batch = BytesMut::new();
        let encoded = records.finish(&encode, &mut batch);
        encoded.map_err(|error| ClientError::invalid(error.to_string()))?;
        let batch = batch.freeze();
        self.client
            .append(stream, Records::Encoded { batch, count }, &options)
            .await
    }

    /// Takes records from a stream of messages until that ends.
    pub(super) async fn ingest(self: &Arc<Self>, mut arguments: Bytes, incoming: &Incoming) -> Result<Bytes, Failed> {
        let name = coding::text(&mut arguments)?;
        let id = arguments.try_get_u64_le()?;
        let stream = self.stream(&name).await?.stream_id;
        let messages = taken(incoming, id)?;
        let shared = Arc::clone(self);
        self.client.runtime().spawn(async move {
            // Cut without its end, the client sees that it is incomplete.
            if let Err(failed) = shared.ingest_all(stream, &messages).await {
                tracing::warn!(
                    ?failed,
                    "records of a client of Seastar RPC are refused; its stream is cut"
                );
                messages.abort();
            }
        });
        Ok(Bytes::copy_from_slice(&id.to_le_bytes()))
    }

    async fn ingest_all(&self, stream: StreamId, messages: &Messages) -> Result<(), Failed> {
        let mut waiting = std::collections::VecDeque::new();
        let lost = |error: sbp_peers::seastar::SeastarError| Failed::Arguments(error.to_string());
        loop {
            // Answers go in the order of what they answer.
            let is_full = waiting.len() >= IN_FLIGHT;
            let next = match waiting.front_mut() {
                None => messages.next().await.map_err(lost)?,
                Some((appended, count)) => tokio::select! {
                    ack = appended => {
                        let answer = placed(&ack?, *count, false);
                        waiting.pop_front();
                        messages.send(answer).await.map_err(lost)?;
                        continue;
                    }
                    next = messages.next(), if !is_full => next.map_err(lost)?,
                },
            };
            let Some(mut message) = next else { break };
            let (records, count) = coding::records(&mut message)?;
            self.appends.ready(stream).await;
            let appended: Appended = self.appends.append(stream, records);
            waiting.push_back((appended, count));
        }
        for (appended, count) in waiting {
            let answer = placed(&appended.await?, count, false);
            messages.send(answer).await.map_err(lost)?;
        }
        messages.end().await.map_err(lost)
    }
}

/// The stream of messages that a verb was given.
pub(super) fn taken(incoming: &Incoming, id: u64) -> Result<Messages, Failed> {
    let none = || Failed::Arguments(format!("there is no stream {id:#x} of this connection"));
    incoming.stream(id).ok_or_else(none)
}
