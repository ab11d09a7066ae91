//! The threads that read batches from the disk.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sbp_frame::CallId;
use sbp_locks::{Condvar, Mutex};

use super::read::ReadJob;
use super::requester::Requester;
use super::server::RangeServer;

/// Two threads keep a disk busy while one of them hands over its result.
const THREADS: usize = 2;

/// When a read has waited this long for a thread, more is fetched than the disk can give, and clients are asked to
/// wait.
const LATE_AFTER: Duration = Duration::from_millis(250);

/// The longest that a client is asked to wait.
const MAX_THROTTLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Order {
    requester: Arc<dyn Requester>,
    call: CallId,
    job: ReadJob,
    /// When the read was submitted.
    since: Instant,
}

/// The reader threads and their queue. The queue is bounded by what connections may have in flight.
#[derive(Debug)]
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<Order>,
    stopped: bool,
}

impl Readers {
    pub(crate) fn start(ranges: &Arc<RangeServer>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::with_capacity(THREADS);
        for number in 0..THREADS {
            let (shared, ranges) = (Arc::clone(&shared), Arc::clone(ranges));
            let thread = std::thread::Builder::new().name(format!("sbp-reader-{number}"));
            threads.push(thread.spawn(move || shared.serve(&ranges))?);
        }
        Ok(Self {
            shared,
            threads: Mutex::new(threads),
        })
    }

    /// Queues a job; its result is [delivered](Requester::deliver) to `requester`.
    pub(crate) fn submit(&self, requester: Arc<dyn Requester>, call: CallId, job: ReadJob, now: Instant) {
        self.shared.orders.lock().waiting.push_back(Order {
            requester,
            call,
            job,
            since: now,
        });
        self.shared.arrived.notify_one();
    }

    /// How long a client is asked to wait before its next FETCH, in milliseconds; 0: not at all.
    pub(crate) fn throttle_ms(&self, now: Instant) -> i32 {
        let oldest = self.shared.orders.lock().waiting.front().map(|order| order.since);
        let pause = oldest.map_or(Duration::ZERO, |since| throttle(now.saturating_duration_since(since)));
        i32::try_from(pause.as_millis()).unwrap_or(i32::MAX)
    }

    /// How many jobs wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.orders.lock().waiting.len()
    }

    /// Ends the threads once the queued jobs are done.
    pub(crate) fn stop(&self) {
        self.shared.orders.lock().stopped = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
    }
}

/// The pause to ask clients for when the oldest queued read has waited this long.
fn throttle(waited: Duration) -> Duration {
    waited.saturating_sub(LATE_AFTER).min(MAX_THROTTLE)
}

impl Shared {
    fn next(&self) -> Option<Order> {
        let mut orders = self.orders.lock();
        loop {
            if let Some(order) = orders.waiting.pop_front() {
                return Some(order);
            }
            if orders.stopped {
                return None;
            }
            self.arrived.wait(&mut orders);
        }
    }

    fn serve(&self, ranges: &RangeServer) {
        while let Some(Order {
            requester, call, job, ..
        }) = self.next()
        {
            if requester.is_gone() {
                continue;
            }
            requester.deliver(call, job.run(ranges));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_asked_to_wait_only_when_reads_are_late() {
        let ms = Duration::from_millis;
        let table = [(0, 0), (250, 0), (251, 1), (750, 500), (1_250, 1_000), (60_000, 1_000)];
        for (waited, asked) in table {
            assert_eq!(throttle(ms(waited)), ms(asked), "{waited} ms");
        }
    }
}
