//! Appends to many streams, each stored once however often the service has to be asked.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sbp_client::{Ack, AppendOptions, Client, ClientError, Writer, WriterOptions};
use sbp_locks::Mutex;
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};
use tokio::task::AbortHandle;

/// How long an append may take, all attempts included: less than clients of other protocols wait for an answer.
const PATIENCE: Duration = Duration::from_secs(25);
/// How long a writer is kept that nobody appends with. Far longer than [`PATIENCE`]: nothing of it is under way then, and so the
/// next one cannot overtake it. A service remembers each writer for a while, so a stream that is used now and then should not
/// have many.
const KEPT: Duration = Duration::from_secs(600);
const _: () = assert!(KEPT.as_secs() > 2 * PATIENCE.as_secs());
/// How often it is looked for such writers.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What becomes of an append.
pub(crate) type Appended = Pin<Box<dyn Future<Output = Result<Ack, ClientError>> + Send>>;

/// A writer for each stream that is appended to, as long as it is. What is appended in one turn is handed over together.
#[derive(Debug)]
pub(crate) struct Appends {
    client: Client,
    writers: Arc<Mutex<Kept<Writer>>>,
    dropping: AbortHandle,
}

impl Appends {
    pub(crate) fn new(client: Client) -> Self {
        let writers: Arc<Mutex<Kept<Writer>>> = Arc::default();
        let dropping = client.runtime().spawn(drop_idle(Arc::downgrade(&writers)));
        Self {
            client,
            writers,
            dropping: dropping.abort_handle(),
        }
    }

    /// Appends records. Their place behind what was appended before is settled when this returns; the future waits until they
    /// are stored.
    pub(crate) fn append(&self, stream: StreamId, records: RecordsBuilder) -> Appended {
        let writer = self.writer(stream);
        Box::pin(writer.append(records))
    }

    /// Waits until another append to this stream would not wait for long.
    pub(crate) async fn ready(&self, stream: StreamId) {
        self.writer(stream).ready().await;
    }

    /// Appends records if the first of them gets this offset.
    pub(crate) async fn append_at(
        &self,
        stream: StreamId,
        records: RecordsBuilder,
        offset: Offset,
    ) -> Result<Ack, ClientError> {
        let options = AppendOptions {
            expected_offset: Some(offset),
            timeout: Some(PATIENCE),
            ..AppendOptions::default()
        };
        self.client.append(stream, records, &options).await
    }

    fn writer(&self, stream: StreamId) -> Writer {
        let mut writers = self.writers.lock();
        let now = now();
        if let Some(writer) = writers.get(stream, now).filter(|writer| writer.stopped().is_none()) {
            return writer.clone();
        }
        let options = WriterOptions {
            timeout: PATIENCE,
            ..WriterOptions::default()
        };
        let writer = self.client.writer(stream, options);
        writers.insert(stream, writer.clone(), now);
        writer
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        self.dropping.abort();
    }
}

/// Now, as the runtime's clock says.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Drops the writers that nobody appends with any more, for as long as there are any [`Appends`].
async fn drop_idle<T>(kept: Weak<Mutex<Kept<T>>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(kept) = kept.upgrade() else { return };
        // A writer has things to tell when it goes, so it goes when nothing is locked.
        let idle = kept.lock().take_idle(now());
        drop(idle);
    }
}

/// What is kept for each stream, and when it was last used.
#[derive(Debug)]
struct Kept<T>(HashMap<StreamId, (T, Instant)>);

impl<T> Kept<T> {
    fn insert(&mut self, stream: StreamId, value: T, now: Instant) {
        self.0.insert(stream, (value, now));
    }

    fn get(&mut self, stream: StreamId, now: Instant) -> Option<&T> {
        let (value, used) = self.0.get_mut(&stream)?;
        *used = now;
        Some(value)
    }

    /// Takes out what was not used for longer than it is kept.
    fn take_idle(&mut self, now: Instant) -> Vec<T> {
        let is_idle = |_: &StreamId, (_, used): &mut (T, Instant)| now.saturating_duration_since(*used) >= KEPT;
        let idle = self.0.extract_if(is_idle).map(|(_, (value, _))| value).collect();
        self.0.shrink_to(2 * self.0.len());
        idle
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_uses_is_kept_for_a_while_and_what_is_used_for_ever() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        for stream in 0..10_000 {
            kept.insert(StreamId(stream), stream, start);
        }
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(kept.take_idle(at(599)).is_empty());
        assert_eq!(kept.get(StreamId(7), at(599)), Some(&7));
        let mut idle = kept.take_idle(at(600));
        idle.sort_unstable();
        let expected: Vec<_> = (0..10_000).filter(|stream| *stream != 7).collect();
        assert_eq!(idle, expected);
        assert!(kept.0.capacity() < 100, "the memory is given back");
        assert_eq!(kept.get(StreamId(7), at(1_198)), Some(&7));
        assert_eq!(kept.get(StreamId(8), at(1_198)), None);
        assert_eq!(kept.take_idle(at(1_798)), [7]);
        assert!(kept.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_ones_are_dropped_without_anybody_who_asks_for_one() {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let task = tokio::spawn(drop_idle(Arc::downgrade(&kept)));
        let value = Arc::new(());
        kept.lock().insert(StreamId(1), Arc::clone(&value), now());
        tokio::time::sleep(KEPT - Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&value), 2);
        tokio::time::sleep(2 * LOOK_EVERY).await;
        assert_eq!(Arc::strong_count(&value), 1);
        drop(kept);
        task.await.expect("it ends when nobody appends any more");
    }
}
