//! Batches as records or columns, with the schema that their stream has now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_messages::Stream;
use sbp_record::{Batch, BatchError, StreamSchema};

use crate::call::answers::only;
use crate::client::Client;
use crate::error::ClientError;
use crate::read::answer::FetchedBatch;

/// A batch that can be read, and what was learned of its stream on the way.
#[derive(Debug)]
pub struct Decoded {
    /// The batch.
    pub batch: Batch,
    /// The stream as it was described anew, because the batch has columns that the schema given did not have.
    pub newer: Option<Arc<Stream>>,
}

impl Client {
    /// Checks a batch and makes it readable. `bytes` are the batch's own, or a copy of them; `schema` is what the caller
    /// knows of the stream's.
    ///
    /// A stream may be given columns at any time, so a batch with columns that `schema` does not have is no damage: the
    /// stream is described again, and the batch is read with the schema that it has now.
    ///
    /// # Errors
    ///
    /// The batch is damaged, or has columns that the stream, described just now, does not have; or that call failed.
    pub async fn decode(
        &self,
        fetched: &FetchedBatch,
        bytes: Bytes,
        schema: Option<&StreamSchema>,
        timeout: Option<Duration>,
    ) -> Result<Decoded, ClientError> {
        let place = |error: ClientError| error.with_stream(fetched.stream).with_offset(fetched.from);
        match Batch::decode(bytes.clone(), schema) {
            Ok(batch) => return Ok(Decoded { batch, newer: None }),
            Err(BatchError::SchemaNeeded { .. }) => {}
            Err(error) => return Err(place(ClientError::damaged(error.to_string()))),
        }
        let described = self.describe_streams(&[fetched.stream], &[], timeout).await;
        let stream = described.and_then(only).map_err(place)?;
        let schema = stream.schema.as_deref().map(StreamSchema::from_ipc).transpose();
        let schema = schema.map_err(|error| place(ClientError::protocol(error.to_string())))?;
        match Batch::decode(bytes, schema.as_ref()) {
            Ok(batch) => Ok(Decoded {
                batch,
                newer: Some(stream),
            }),
            Err(BatchError::SchemaNeeded { fingerprint, .. }) => {
                let what = format!(
                    "the batch has columns of the schema with fingerprint {fingerprint:016x}, which the stream has not \
                     had so far, although it was described again"
                );
                Err(place(ClientError::protocol(what)))
            }
            Err(error) => Err(place(ClientError::damaged(error.to_string()))),
        }
    }
}
