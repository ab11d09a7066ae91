//! The threads that read what is no longer in memory.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sbp_frame::CallId;

use crate::connection::{ConnectionCommand, Port, ReadJob};
use crate::range::RangeServer;

/// Enough to keep a disk busy while a result is being handed over.
const THREADS: usize = 2;

#[derive(Debug)]
struct Order {
    port: Arc<Port>,
    call: CallId,
    job: ReadJob,
}

/// Reader threads. What waits for them is bounded by what connections may have in flight.
#[derive(Debug)]
pub(crate) struct Readers {
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    pub(crate) fn start(ranges: &Arc<RangeServer>) -> io::Result<Self> {
        let (sender, orders) = mpsc::channel::<Order>();
        let orders = Arc::new(Mutex::new(orders));
        let mut threads = Vec::with_capacity(THREADS);
        for number in 0..THREADS {
            let (orders, ranges) = (Arc::clone(&orders), Arc::clone(ranges));
            let thread = std::thread::Builder::new().name(format!("sbp-reader-{number}"));
            threads.push(thread.spawn(move || serve(&orders, &ranges))?);
        }
        Ok(Self {
            orders: Mutex::new(Some(sender)),
            threads: Mutex::new(threads),
        })
    }

    /// Has a job done; the connection is told.
    pub(crate) fn submit(&self, port: Arc<Port>, call: CallId, job: ReadJob) {
        if let Some(orders) = self.orders.lock().as_ref() {
            // The receiving end lives as long as the threads, which only `stop` ends.
            let _stopped = orders.send(Order { port, call, job });
        }
    }

    /// Ends the threads, after what was submitted is done.
    pub(crate) fn stop(&self) {
        drop(self.orders.lock().take());
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
    }
}

fn serve(orders: &Mutex<mpsc::Receiver<Order>>, ranges: &RangeServer) {
    loop {
        // The lock is given back before the read begins, so that another thread can take the next order.
        let next = orders.lock().recv();
        let Ok(Order { port, call, job }) = next else { return };
        if port.mailbox.is_closed() {
            continue;
        }
        let done = job.run(ranges);
        let _gone = port.mailbox.post(ConnectionCommand::Read { call, done });
    }
}
