//! Rows of typed columns, cut into batches by their number and their bytes alone, however they arrive.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;

use crate::spark::row_bytes::{row_bytes, rows_within};
use crate::spark::rows::BatchLimits;

/// Collects rows into one batch at a time.
#[derive(Debug)]
pub(crate) struct TypedGatherer {
    limits: BatchLimits,
    /// Rows of the batch that was begun, as they came.
    open: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl TypedGatherer {
    pub(crate) fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            open: Vec::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// Takes the rows of `batch`; adds the batches that are complete with them to `complete`.
    pub(crate) fn push(&mut self, batch: &RecordBatch, complete: &mut Vec<RecordBatch>) -> Result<(), ArrowError> {
        let weigh = |rows: &Range<usize>| {
            batch
                .columns()
                .iter()
                .map(|column| row_bytes(column, rows))
                .sum::<usize>()
        };
        let mut rows = 0..batch.num_rows();
        while !rows.is_empty() {
            let room = self.limits.rows.saturating_sub(self.rows).min(rows.len());
            let near = rows.start..rows.start + room;
            let fits = rows_within(&near, self.limits.bytes.saturating_sub(self.bytes), weigh);
            // A batch takes one row, however large.
            let count = if self.rows == 0 { fits.max(1) } else { fits };
            if count > 0 {
                self.bytes = self.bytes.saturating_add(weigh(&(rows.start..rows.start + count)));
                self.rows += count;
                self.open.push(batch.slice(rows.start, count));
                rows.start += count;
            }
            if !rows.is_empty() || self.rows >= self.limits.rows {
                self.sweep(complete)?;
            }
        }
        Ok(())
    }

    /// Completes the batch that was begun.
    pub(crate) fn sweep(&mut self, complete: &mut Vec<RecordBatch>) -> Result<(), ArrowError> {
        (self.rows, self.bytes) = (0, 0);
        let mut parts = std::mem::take(&mut self.open);
        match parts.len() {
            0 => {}
            1 => complete.append(&mut parts),
            _ => {
                let Some(first) = parts.first() else { return Ok(()) };
                complete.push(concat_batches(first.schema_ref(), &parts)?);
            }
        }
        Ok(())
    }
}
