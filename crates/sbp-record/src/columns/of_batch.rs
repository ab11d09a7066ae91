//! Converts one batch to columns.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::SchemaRef;
use sbp_types::{Offset, StreamId};

use super::names::NameColumns;
use super::piece::{Piece, Source};
use super::set::plain_columns;
use crate::batch::{Batch, Body};
use crate::error::BatchError;

impl Batch {
    /// The records with offsets in [from, to) as columns.
    ///
    /// Typed batches give the stream's columns; others `offset`, `timestamp`, `key`, `value` and `headers`, with the
    /// types of [`Batch::record_schema`]. Columns are views of the batch's memory where possible.
    ///
    /// # Errors
    ///
    /// A typed column breaks a rule of Arrow.
    pub fn to_record_batch(&self, from: Offset, to: Offset) -> Result<RecordBatch, BatchError> {
        let rows = self.rows_between(from, to);
        match self.body() {
            Body::Typed { view, schema } => {
                let columns = schema
                    .arrow()
                    .fields()
                    .iter()
                    .enumerate()
                    .map(|(index, field)| {
                        let (array, _copied) = view.column(index, field)?;
                        Ok(array.map_or_else(
                            || new_null_array(field.data_type(), rows.len()),
                            |array| array.slice(rows.start, rows.len()),
                        ))
                    })
                    .collect::<Result<Vec<ArrayRef>, BatchError>>()?;
                assemble(Arc::clone(schema.arrow()), columns, rows.len())
            }
            _ => {
                let source = Source {
                    name: Arc::from(""),
                    id: StreamId(0),
                };
                let set = plain_columns();
                let columns = Piece::new(set, &source, self)?.view(&rows, &mut NameColumns::default())?;
                assemble(Arc::clone(set.schema()), columns, rows.len())
            }
        }
    }

    /// The schema that [`Batch::to_record_batch`] returns for batches of records.
    #[must_use]
    pub fn record_schema() -> SchemaRef {
        Arc::clone(plain_columns().schema())
    }
}

pub(super) fn assemble(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, BatchError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}
