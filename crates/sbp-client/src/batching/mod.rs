//! Records gathered into batches, and a report for each batch: writing without an object for each record.

mod sender;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_record::Compression;
use sbp_types::{StreamId, WriterId};

pub use self::sender::Deliveries;
use self::sender::Sender;
use crate::client::Client;
use crate::error::ClientError;
use crate::outcome::Ack;
use crate::writer::WriterOptions;

/// How a batch writer writes.
#[derive(Clone, Copy, Debug)]
pub struct BatchWriterOptions {
    /// How large a batch becomes before it is sent.
    pub batch_bytes: usize,
    /// How long the first record of a batch waits for others; zero: each append is sent as it comes.
    pub linger: Duration,
    /// How batches are stored.
    pub compression: Compression,
    /// Whether a batch whose fate is unknown is sent again, and recognised by the server: see
    /// [`Writer`](crate::Writer).
    pub idempotent: bool,
    /// The writer's name; see [`WriterOptions::writer_id`].
    pub writer_id: Option<WriterId>,
    /// The instance of the writer; see [`WriterOptions::epoch`].
    pub epoch: Option<i64>,
    /// Batches that may be on their way; at most 64 of an idempotent writer.
    pub max_in_flight: usize,
    /// Whether stored batches are reported too, and not only those that failed.
    pub reports: bool,
    /// How long a batch may take, all attempts included.
    pub timeout: Duration,
}

impl Default for BatchWriterOptions {
    fn default() -> Self {
        let writer = WriterOptions::default();
        Self {
            batch_bytes: 256 << 10,
            linger: Duration::from_millis(5),
            compression: writer.compression,
            idempotent: true,
            writer_id: None,
            epoch: None,
            max_in_flight: writer.max_in_flight,
            reports: true,
            timeout: writer.timeout,
        }
    }
}

/// One record, borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// Its value; `None`: null.
    pub value: Option<&'a [u8]>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its time, in microseconds since the epoch; `None`: when its batch is made.
    pub timestamp_us: Option<i64>,
    /// Its headers.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// A record was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Its number, counted from the writer's first.
    pub sequence: i64,
    /// The batch is full: [`BatchWriter::send`] is to be called.
    pub is_full: bool,
    /// It is the first of its batch.
    pub(crate) begins: bool,
}

/// What became of one batch.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The number of its first record.
    pub first_sequence: i64,
    /// The number of its last record.
    pub last_sequence: i64,
    /// Where it is stored, or why it is not, or may not be.
    pub result: Result<Ack, ClientError>,
}

/// Appends to one stream, gathered into batches and stored in the order of the calls.
///
/// Clones write in one order. When the last one is dropped, what is gathered is still sent, without a word about its
/// fate.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    sender: Arc<Sender>,
}

impl Client {
    /// A batch writer for `stream`. An idempotent one needs a server that offers `idempotence`.
    #[must_use]
    pub fn batch_writer(&self, stream: StreamId, options: BatchWriterOptions) -> BatchWriter {
        BatchWriter {
            sender: Sender::new(self.clone(), stream, options),
        }
    }
}

impl BatchWriter {
    /// Opens a writer with a name: makes its epoch current, unless it was given one, and asks the server where it goes
    /// on. Nothing else needs it; to be called before the first record.
    ///
    /// # Errors
    ///
    /// That the server could not be asked, or has seen a higher epoch than the one given.
    pub async fn open(&self) -> Result<(), ClientError> {
        self.sender.open().await
    }

    /// Gathers one record. To be followed by [`Self::send`] when the batch is full, and to be called only while there
    /// [is room](Self::has_room): what is pushed all the same waits in memory.
    ///
    /// # Errors
    ///
    /// That the writer is closed, or that the record is larger than a batch can be; then it has no number. That a writer
    /// with a name has stopped.
    pub fn push(&self, record: &Record<'_>) -> Result<Pushed, ClientError> {
        self.sender.push(record)
    }

    /// Whether a record can be stored, as far as its size goes.
    ///
    /// # Errors
    ///
    /// That it is larger than a batch can be.
    pub fn check(&self, record: &Record<'_>) -> Result<(), ClientError> {
        self.sender.check(record)
    }

    /// Takes a whole batch of `count` records, encoded. Returns the number of the last one.
    ///
    /// # Errors
    ///
    /// That the writer is closed, or has stopped; that the batch is too large, and has no number.
    pub fn push_batch(&self, batch: Bytes, count: u32) -> Result<i64, ClientError> {
        self.sender.push_batch(batch, count)
    }

    /// Sends what is gathered, unless as much is on its way as may be: then it goes when something of that is over.
    pub fn send(&self) {
        self.sender.send();
    }

    /// Whether another record may be pushed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.sender.has_room()
    }

    /// Waits until another record may be pushed.
    pub async fn room(&self) {
        self.sender.room().await;
    }

    /// Sends what is gathered, and waits until the fate of everything appended so far is known. What it is, the
    /// deliveries say.
    pub async fn flush(&self) {
        self.sender.flush().await;
    }

    /// Takes no more records. Those gathered are sent by the next [`Self::flush`].
    pub fn close(&self) {
        self.sender.close();
    }

    /// Whether [`Self::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// What became of batches since this was last asked, in their order.
    #[must_use]
    pub fn take_deliveries(&self) -> Vec<Delivery> {
        self.sender.take_deliveries()
    }

    /// The deliveries, for a task that waits for them. It takes them in turns with [`Self::take_deliveries`].
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        self.sender.deliveries()
    }

    /// Whether there are deliveries to take. Takes no lock.
    #[must_use]
    pub fn has_deliveries(&self) -> bool {
        self.sender.has_deliveries()
    }

    /// Records whose fate is not known.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.sender.unfinished()
    }

    /// The number that the next record gets.
    #[must_use]
    pub fn next_sequence(&self) -> i64 {
        self.sender.next_sequence()
    }

    /// The writer's name; `None` if it is not idempotent.
    #[must_use]
    pub fn id(&self) -> Option<WriterId> {
        self.sender.id()
    }

    /// The writer's epoch.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.sender.epoch()
    }
}
