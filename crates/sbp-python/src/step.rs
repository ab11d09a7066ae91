//! Steps through a source: who takes a batch, and what becomes of one that nobody takes.
//!
//! A step that was cancelled may already have its batch. That batch must neither be lost, which would be a silent gap,
//! nor come after its successors. So a batch is *on its way* until whoever asked for it has it; the next step waits
//! that long, and a batch that comes back is the next one again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_schema::SchemaRef;
use sbp_locks::Mutex;
use tokio::sync::Notify;

use crate::batch::Batch;
use crate::calls::Failure;
use crate::read::Source;

/// A source that one thread or task steps through while another may close it.
pub(crate) struct SharedSource {
    source: tokio::sync::Mutex<Source>,
    hand: Mutex<Hand>,
    /// The batch that was on its way is there, or is back.
    settled: Notify,
    closed: AtomicBool,
    closing: Notify,
    taken: Option<Taken>,
}

/// Told of each batch that somebody has got.
pub(crate) type Taken = Box<dyn Fn(&Batch) + Send + Sync>;

/// What has left the source.
#[derive(Default)]
struct Hand {
    on_its_way: bool,
    back: VecDeque<Batch>,
}

impl SharedSource {
    pub(crate) fn new(source: Source, taken: Option<Taken>) -> Arc<Self> {
        Arc::new(Self {
            taken,
            source: tokio::sync::Mutex::new(source),
            hand: Mutex::default(),
            settled: Notify::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    /// See [`Source::open`].
    pub(crate) async fn open(&self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.source.lock().await.open(timeout).await
    }

    /// See [`Source::columns`].
    pub(crate) async fn columns(&self) -> Result<SchemaRef, String> {
        self.source.lock().await.columns()
    }

    /// See [`Source::next`]; after a close, and when one comes while it waits, there is nothing more.
    pub(crate) async fn next(self: Arc<Self>, timeout: Option<Duration>) -> Result<Step, Failure> {
        let closing = self.closing.notified();
        if self.closed.load(Ordering::SeqCst) {
            return Ok(Step::over());
        }
        tokio::select! {
            biased;
            () = closing => Ok(Step::over()),
            stepped = self.step(timeout) => stepped,
        }
    }

    async fn step(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Step, Failure> {
        // Held to the end: steps take their turns.
        let mut source = self.source.lock().await;
        loop {
            let settled = self.settled.notified();
            {
                let mut hand = self.hand.lock();
                if !hand.on_its_way {
                    if let Some(batch) = hand.back.pop_front() {
                        hand.on_its_way = true;
                        return Ok(Step::new(self, batch));
                    }
                    break;
                }
            }
            settled.await;
        }
        match source.next(timeout).await? {
            Some(batch) => {
                self.hand.lock().on_its_way = true;
                Ok(Step::new(self, batch))
            }
            None => Ok(Step::over()),
        }
    }

    /// Ends reading, also under a step that waits, and frees what was read ahead.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.source.lock().await.close();
        let dropped = std::mem::take(&mut self.hand.lock().back);
        drop(dropped);
    }
}

/// What a step came to. Dropped with its batch, it gives the batch back.
pub(crate) struct Step(Option<(Arc<SharedSource>, Batch)>, Whereabouts);

#[derive(PartialEq, Eq)]
enum Whereabouts {
    OnItsWay,
    Delivered,
}

impl Step {
    fn new(source: &Arc<SharedSource>, batch: Batch) -> Self {
        Self(Some((Arc::clone(source), batch)), Whereabouts::OnItsWay)
    }

    /// There are no more batches.
    fn over() -> Self {
        Self(None, Whereabouts::Delivered)
    }

    /// Whoever asked has it now, and may ask for the next one.
    pub(crate) fn deliver(&mut self) {
        if self.1 == Whereabouts::OnItsWay {
            self.1 = Whereabouts::Delivered;
            if let Some((source, _)) = &self.0 {
                source.hand.lock().on_its_way = false;
                source.settled.notify_waiters();
            }
        }
    }

    /// The batch; `None` at the end.
    pub(crate) fn take(mut self) -> Option<Batch> {
        self.deliver();
        let (source, batch) = self.0.take()?;
        if let Some(taken) = &source.taken {
            taken(&batch);
        }
        Some(batch)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((source, batch)) = self.0.take() {
            let mut hand = source.hand.lock();
            hand.back.push_front(batch);
            if self.1 == Whereabouts::OnItsWay {
                hand.on_its_way = false;
            }
            drop(hand);
            source.settled.notify_waiters();
        }
    }
}
