//! Batches that are read as one Arrow stream: record batches of one schema, also when there are none.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use tokio::runtime::Handle;

use crate::client_core::ClientCore;
use crate::process::fork::{self, Generation};
use crate::read::shared_source::SharedSource;
use crate::requests::Failure;

/// The record batches, pulled by a consumer that holds no interpreter lock. It touches no Python object.
pub(crate) struct RecordBatches {
    handle: Handle,
    source: Arc<SharedSource>,
    timeout: Option<Duration>,
    schema: SchemaRef,
    made_by: Generation,
    over: bool,
    /// The connection lives as long as it is read from.
    _core: Arc<ClientCore>,
}

impl RecordBatches {
    pub(crate) fn new(
        core: &Arc<ClientCore>,
        handle: Handle,
        source: Arc<SharedSource>,
        timeout: Option<Duration>,
        schema: SchemaRef,
    ) -> Self {
        Self {
            handle,
            source,
            timeout,
            schema,
            made_by: fork::current(),
            over: false,
            _core: Arc::clone(core),
        }
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let step = self.handle.block_on(Arc::clone(&self.source).next(self.timeout))?;
        let Some(batch) = step.take() else {
            return Ok(None);
        };
        let rows = batch.rows()?;
        if rows.schema_ref() == &self.schema {
            return Ok(Some(rows));
        }
        // A tail whose stream was given columns since it began: they are not part of this Arrow stream.
        let fields = self.schema.fields().iter();
        let places: Result<Vec<_>, _> = fields.map(|field| rows.schema_ref().index_of(field.name())).collect();
        let rows = places.and_then(|places| rows.project(&places));
        rows.map(Some).map_err(|error| Failure::Corrupt(error.to_string()))
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.made_by.is_current() {
            // The I/O thread that would answer lives in the parent.
            let text = "[SBP-9012] these batches were read before a fork, in the parent process; read them anew";
            return Some(Err(ArrowError::ExternalError(text.into())));
        }
        if self.over {
            return None;
        }
        match self.pull() {
            Ok(Some(rows)) => Some(Ok(rows)),
            Ok(None) => {
                self.over = true;
                None
            }
            Err(failure) => {
                self.over = true;
                Some(Err(ArrowError::ExternalError(failure.to_string().into())))
            }
        }
    }
}

impl RecordBatchReader for RecordBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
