//! Reads an ARROW body: the message's metadata is checked first, columns are built when they are needed.

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_ipc::{MessageHeader, MetadataVersion};
use arrow_schema::Field;
use flatbuffers::VerifierOptions;

use super::column::{Parts, buffer_count, build, node_count};
use crate::error::BatchError;
use crate::schema::StreamSchema;

const CONTINUATION: u32 = u32::MAX;

/// The columns of one batch. They share the body's memory.
#[derive(Clone, Debug)]
pub(crate) struct TypedView {
    rows: usize,
    /// The message's body.
    body: Buffer,
    /// The length of each node. Each field has a node, and nested fields follow their parent.
    nodes: Vec<usize>,
    /// The (offset, length) of each buffer in the body, all within bounds.
    buffers: Vec<(usize, usize)>,
    /// The first node and the first buffer of each column in the batch.
    starts: Vec<(usize, usize)>,
}

impl TypedView {
    /// Reads the message of a batch with `rows` records, which has the first `columns` columns of `schema`.
    pub(crate) fn parse(
        stored: &Buffer,
        rows: usize,
        schema: &StreamSchema,
        columns: usize,
    ) -> Result<Self, BatchError> {
        let (metadata, body) = split_message(stored)?;
        let limits = VerifierOptions {
            max_depth: 8,
            max_tables: 64,
            max_apparent_size: 64 * 1024 * 1024,
            ignore_missing_null_terminator: true,
        };
        let message = arrow_ipc::root_as_message_with_opts(&limits, metadata)
            .map_err(|error| BatchError::body(format!("Arrow message: {error}")))?;
        if message.header_type() != MessageHeader::RecordBatch
            || !matches!(message.version(), MetadataVersion::V4 | MetadataVersion::V5)
            || usize::try_from(message.bodyLength()).ok() != Some(body.len())
        {
            return Err(BatchError::body(
                "it is not one Arrow RecordBatch message of the told length",
            ));
        }
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| BatchError::body("Arrow message without a batch"))?;
        if batch.compression().is_some() {
            return Err(BatchError::body("it uses Arrow's own compression"));
        }
        if usize::try_from(batch.length()).ok() != Some(rows) {
            return Err(BatchError::body(format!(
                "it has {} rows, the head says {rows}",
                batch.length()
            )));
        }
        let nodes = batch
            .nodes()
            .into_iter()
            .flatten()
            .map(|node| to_length(node.length()))
            .collect::<Result<_, _>>()?;
        let buffers = batch
            .buffers()
            .into_iter()
            .flatten()
            .map(|buffer| locate(buffer.offset(), buffer.length(), body.len()))
            .collect::<Result<_, _>>()?;
        let mut view = Self {
            rows,
            body,
            nodes,
            buffers,
            starts: Vec::with_capacity(columns),
        };
        view.assign(schema, columns)?;
        Ok(view)
    }

    /// Finds the first node and buffer of each column, and checks that none are left over.
    fn assign(&mut self, schema: &StreamSchema, columns: usize) -> Result<(), BatchError> {
        let (mut node, mut buffer) = (0, 0);
        for field in schema.arrow().fields().iter().take(columns) {
            if self.nodes.get(node).is_some_and(|&length| length != self.rows) {
                return Err(BatchError::body(format!(
                    "column \"{}\" has another length than the batch",
                    field.name()
                )));
            }
            self.starts.push((node, buffer));
            node += node_count(field.data_type());
            buffer += buffer_count(field.data_type());
        }
        if node != self.nodes.len() || buffer != self.buffers.len() {
            return Err(BatchError::body(format!(
                "it has {} fields and {} buffers, its schema has {node} and {buffer}",
                self.nodes.len(),
                self.buffers.len()
            )));
        }
        Ok(())
    }

    /// Builds column `index` as `field`, which has the layout of the stream's column; `None` if the column is newer
    /// than the batch, so that it is read as nulls. The second value is the number of bytes copied because they were
    /// not aligned.
    pub(crate) fn column(&self, index: usize, field: &Field) -> Result<(Option<ArrayRef>, usize), BatchError> {
        let Some(&(node, buffer)) = self.starts.get(index) else {
            return Ok((None, 0));
        };
        let mut parts = Parts::new(
            &self.body,
            self.nodes.get(node..).unwrap_or_default(),
            self.buffers.get(buffer..).unwrap_or_default(),
        );
        let array = build(field, &mut parts)
            .map_err(|rule| BatchError::body(format!("column \"{}\": {rule}", field.name())))?;
        if array.null_count() > 0 && !field.is_nullable() {
            return Err(BatchError::body(format!(
                "column \"{}\" has nulls, its schema allows none",
                field.name()
            )));
        }
        Ok((Some(array), parts.copied()))
    }
}

/// Splits a message (continuation marker, length of the metadata, metadata, body) into metadata and body.
fn split_message(stored: &Buffer) -> Result<(&[u8], Buffer), BatchError> {
    let short = || BatchError::body(format!("its {} bytes are no Arrow message", stored.len()));
    let (marker, rest) = stored.split_first_chunk::<4>().ok_or_else(short)?;
    if u32::from_le_bytes(*marker) != CONTINUATION {
        return Err(BatchError::body(
            "it does not begin with the continuation marker of an Arrow message",
        ));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_negative| short())?;
    let metadata = rest.get(..length).ok_or_else(short)?;
    Ok((metadata, stored.slice(length + 8)))
}

fn to_length(told: i64) -> Result<usize, BatchError> {
    usize::try_from(told).map_err(|_negative| BatchError::body(format!("a column has {told} rows")))
}

fn locate(offset: i64, length: i64, body: usize) -> Result<(usize, usize), BatchError> {
    let place = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    place
        .filter(|(offset, length)| offset.checked_add(*length).is_some_and(|end| end <= body))
        .ok_or_else(|| BatchError::body(format!("a buffer lies at {offset} with {length} bytes")))
}
