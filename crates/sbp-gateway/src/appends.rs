//! Appends to many streams, each stored once however often the service has to be asked.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use sbp_client::{Ack, AppendOptions, Client, ClientError, Writer, WriterOptions};
use sbp_locks::Mutex;
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};

/// How long an append may take, all attempts included: less than clients of other protocols wait for an answer.
const PATIENCE: Duration = Duration::from_secs(25);

/// What becomes of an append.
pub(crate) type Appended = Pin<Box<dyn Future<Output = Result<Ack, ClientError>> + Send>>;

/// A writer for each stream that is appended to. What is appended in one turn is handed over together.
#[derive(Debug)]
pub(crate) struct Appends {
    client: Client,
    writers: Mutex<HashMap<StreamId, Writer>>,
}

impl Appends {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            writers: Mutex::new(HashMap::new()),
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
        if let Some(writer) = writers.get(&stream).filter(|writer| writer.stopped().is_none()) {
            return writer.clone();
        }
        let options = WriterOptions {
            timeout: PATIENCE,
            ..WriterOptions::default()
        };
        let writer = self.client.writer(stream, options);
        writers.insert(stream, writer.clone());
        writer
    }
}
