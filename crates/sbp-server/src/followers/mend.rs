//! Mends damaged copies: batches that the disk has lost are read from other servers and put back in their places.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use sbp_log::DamagedInterval;
use sbp_messages::{FetchInfo, FetchRequest, FetchResponse, Message};
use sbp_types::{Offset, ServerId};
use tokio::time::Instant;

use super::FollowerLinks;
use crate::peer::PeerChannel;
use crate::range::RangeServer;

/// How often it is looked whether anything is damaged.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When damage that could not be mended is tried again: other servers may not be known or not be there yet. Twice as long
/// each further time, up to the longest.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_AT_MOST: Duration = Duration::from_secs(60);
/// The most damaged places that are mended in one turn.
const MOST: usize = 256;
/// How long another server may take to send one batch: first little, so that one that is away, or has moved, keeps the others from
/// nothing; then as long as a large one takes.
const FETCH_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// When damage that could not be mended is tried again, and how long it waits after the next time.
type Tried = HashMap<DamagedInterval, (Instant, Duration)>;

/// A batch of another server.
struct Sent {
    base: Offset,
    next: Offset,
    batch: Bytes,
}

/// Mends whatever is damaged, until the links are dropped.
pub(super) async fn mend_what_is_damaged(links: Weak<FollowerLinks>, me: ServerId) {
    let mut tried = Tried::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(links) = links.upgrade() else { return };
        let Some(ranges) = links.ranges.upgrade() else { return };
        let damage = ranges.note_damage();
        let now = Instant::now();
        tried.retain(|damaged, _| damage.binary_search(damaged).is_ok());
        let is_due = |damaged: &DamagedInterval| tried.get(damaged).is_none_or(|(again_at, _)| *again_at <= now);
        // Those that wait keep no others from their turn.
        let due: Vec<_> = damage.into_iter().filter(is_due).take(MOST).collect();
        let mut channels = HashMap::new();
        let mut mended = 0;
        for damaged in due {
            let wait = tried.get(&damaged).map_or(AGAIN_AFTER, |(_, wait)| *wait);
            let batches = mend(&links, &ranges, &mut channels, damaged, me).await;
            mended += batches;
            if batches == 0 {
                tried.insert(damaged, (Instant::now() + wait, AGAIN_AFTER_AT_MOST.min(wait * 2)));
            }
        }
        if mended > 0 {
            note(ranges).await;
        }
    }
}

/// Has the next start know what is whole again.
async fn note(ranges: Arc<RangeServer>) {
    let written = tokio::task::spawn_blocking(move || ranges.log.checkpoint()).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "it could not be noted that damaged records were mended; the next start mends them again");
    }
}

/// Mends what it can of a damaged place. Returns how many batches are whole again.
async fn mend(
    links: &FollowerLinks,
    ranges: &Arc<RangeServer>,
    channels: &mut HashMap<ServerId, PeerChannel>,
    damaged: DamagedInterval,
    me: ServerId,
) -> usize {
    let mut mended = 0;
    // The disk may have given back what it had.
    let here = Arc::clone(ranges);
    let looked = tokio::task::spawn_blocking(move || here.mend(damaged, damaged.from, b"")).await;
    if let Ok(Ok(true)) = looked {
        mended += 1;
    }
    let mut tries = Vec::new();
    for timeout in FETCH_TIMEOUTS {
        let others = ranges.holders(damaged.key).into_iter().filter(|server| *server != me);
        tries.extend(others.map(|server| (server, timeout)));
    }
    for (server, timeout) in tries {
        if !is_damaged(ranges, damaged) {
            break;
        }
        let Some(address) = ranges.addresses.address(server) else {
            continue;
        };
        let channel = channels
            .entry(server)
            .or_insert_with(|| links.channel(address.to_string()));
        let mut from = damaged.from;
        while from < damaged.to {
            let Some(sent) = fetch(channel, damaged, from, timeout).await else {
                break;
            };
            from = sent.next;
            if put_back(ranges, damaged, sent, server).await {
                mended += 1;
            }
        }
    }
    mended
}

/// Whether some of a place is damaged still.
fn is_damaged(ranges: &RangeServer, place: DamagedInterval) -> bool {
    let mut left = ranges.log.damage(place.key).into_iter();
    left.any(|left| left.from < place.to && place.from < left.to)
}

/// The batch that another server has at this offset; `None` if it does not send one.
async fn fetch(channel: &PeerChannel, damaged: DamagedInterval, from: Offset, timeout: Duration) -> Option<Sent> {
    let request = FetchRequest {
        fetch_requests: smallvec::smallvec![FetchInfo {
            stream_id: damaged.key.stream,
            fetch_offset: from,
            // One batch, whatever its size.
            batch_max_bytes: 1,
            ..FetchInfo::default()
        }],
        ..FetchRequest::default()
    };
    let frames = match channel.call_for_frames(&request, timeout).await {
        Ok(frames) => frames,
        Err(error) => {
            tracing::debug!(%error, range = %damaged.key, "damaged records are not sent by another server now");
            return None;
        }
    };
    for frame in frames {
        let response = FetchResponse::decode(&frame.header).ok()?;
        let Some(result) = response.fetch_responses.first() else {
            continue;
        };
        if !result.status.is_success() {
            let status = &result.status;
            tracing::debug!(?status, range = %damaged.key, "damaged records are not sent by another server now");
            return None;
        }
        let (base, next) = (result.base_offset?, result.next_offset?);
        let batch = frame.payload.into_contiguous();
        return (base <= from && from < next && !batch.is_empty()).then_some(Sent { base, next, batch });
    }
    None
}

/// Puts a batch back in its place. Returns whether it can be read now.
async fn put_back(ranges: &Arc<RangeServer>, damaged: DamagedInterval, sent: Sent, server: ServerId) -> bool {
    let key = damaged.key;
    let Sent { base, next, batch } = sent;
    let here = Arc::clone(ranges);
    let repaired = tokio::task::spawn_blocking(move || here.mend(damaged, base, &batch)).await;
    match repaired {
        Ok(Ok(true)) => {
            // As loud as what the damage was told with, so that one does not stand alone.
            tracing::warn!(
                stream = key.stream.0,
                range = key.range.0,
                from = base.0,
                to = next.0,
                %server,
                "records that were damaged on the disk are whole again, from another server's copy"
            );
            true
        }
        Ok(Ok(false)) => {
            tracing::debug!(range = %key, offset = base.0, %server, "damaged records are not those that another server has");
            false
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, range = %key, offset = base.0, "damaged records cannot be put back");
            false
        }
        // The runtime is shutting down.
        Err(_) => false,
    }
}
