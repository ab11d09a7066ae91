//! Records gathered into batches, and a report for each batch: writing without an object for each record.

mod sender;
mod state;

use std::time::Duration;

use sbp_record::Compression;
use sbp_types::WriterId;

pub use self::sender::{BatchWriter, Deliveries};
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
