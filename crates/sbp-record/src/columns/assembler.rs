//! Combines batches into Arrow record batches of a size that consumers work well with.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use sbp_types::Offset;

use super::growing::Growing;
use super::names::NameColumns;
use super::of_batch::assemble;
use super::piece::{Piece, Source};
use super::set::ColumnSet;
use crate::batch::Batch;
use crate::error::BatchError;

/// The size of the record batches to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblyLimits {
    /// A batch with this many rows becomes a record batch of its own, as a view; smaller ones are combined.
    pub min_rows: usize,
    /// The most rows of a record batch.
    pub max_rows: usize,
    /// The most bytes of keys, values and headers in a record batch, unless a single row has more.
    pub max_bytes: usize,
}

impl Default for AssemblyLimits {
    fn default() -> Self {
        Self {
            min_rows: 4_096,
            max_rows: 16_384,
            max_bytes: 4 * 1024 * 1024,
        }
    }
}

impl AssemblyLimits {
    /// A batch with this many bytes becomes a record batch of its own, because copying it would cost more.
    fn large(&self) -> usize {
        self.max_bytes / 4
    }
}

/// Turns batches into Arrow record batches of a column set.
///
/// Large batches are returned as views of the bytes they were read from. Small ones are copied together, column by
/// column. Rows keep the order in which they were pushed. Every array that is returned begins at its own offset 0.
pub struct RowAssembler {
    set: Arc<ColumnSet>,
    limits: AssemblyLimits,
    growing: Vec<Growing>,
    names: NameColumns,
    rows: usize,
    bytes: usize,
    ready: VecDeque<RecordBatch>,
    copied: u64,
}

impl fmt::Debug for RowAssembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowAssembler")
            .field("schema", self.set.schema())
            .field("limits", &self.limits)
            .field("rows", &self.rows)
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl RowAssembler {
    /// An assembler with the default limits: 4,096 to 16,384 rows, or 4 MiB.
    #[must_use]
    pub fn new(set: ColumnSet) -> Self {
        Self::with_limits(set, AssemblyLimits::default())
    }

    /// An assembler with other limits.
    #[must_use]
    pub fn with_limits(set: ColumnSet, limits: AssemblyLimits) -> Self {
        let growing = set.columns().iter().map(|column| Growing::new(*column)).collect();
        Self {
            set: Arc::new(set),
            limits,
            growing,
            names: NameColumns::default(),
            rows: 0,
            bytes: 0,
            ready: VecDeque::new(),
            copied: 0,
        }
    }

    /// The schema of the record batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.set.schema()
    }

    /// The column set.
    #[must_use]
    pub fn columns(&self) -> &ColumnSet {
        &self.set
    }

    /// Takes the records of `batch` whose offsets lie in [from, to), and returns their number.
    ///
    /// # Errors
    ///
    /// The batch does not match the column set, or a typed column breaks a rule of Arrow. Nothing of the batch was
    /// taken then.
    pub fn push(&mut self, source: &Source, batch: &Batch, from: Offset, to: Offset) -> Result<usize, BatchError> {
        let set = Arc::clone(&self.set);
        let piece = Piece::new(&set, source, batch)?;
        let mut rows = batch.rows_between(from, to);
        let taken = rows.len();
        self.copied = self
            .copied
            .saturating_add(u64::try_from(piece.copied()).unwrap_or(u64::MAX));
        while !rows.is_empty() {
            let bytes = piece.byte_length(&rows);
            let many = rows.len() >= self.limits.min_rows;
            if many && self.rows > 0 && self.rows < self.limits.min_rows {
                // Fills up the collected rows, so that the rest can be a view and no small record batch is left before
                // it.
                let room = self.limits.min_rows - self.rows;
                let count = piece.fitting(&rows, room, self.limits.max_bytes.saturating_sub(self.bytes));
                self.collect(&piece, &split_off(&mut rows, count))?;
                self.flush()?;
            } else if many || bytes >= self.limits.large() {
                self.flush()?;
                let count = piece.fitting(&rows, self.limits.max_rows, self.limits.max_bytes);
                let part = split_off(&mut rows, count);
                self.ready.push_back(assemble(
                    Arc::clone(self.set.schema()),
                    piece.view(&part, &mut self.names)?,
                    part.len(),
                )?);
            } else {
                let room = self.limits.max_rows.saturating_sub(self.rows).max(1);
                let count = rows.len().min(room);
                self.collect(&piece, &split_off(&mut rows, count))?;
                if self.rows >= self.limits.max_rows || self.bytes >= self.limits.max_bytes {
                    self.flush()?;
                }
            }
        }
        Ok(taken)
    }

    /// Copies rows to the collected ones.
    fn collect(&mut self, piece: &Piece<'_>, rows: &Range<usize>) -> Result<(), BatchError> {
        let bytes = piece.byte_length(rows);
        if self.rows > 0 && self.bytes.saturating_add(bytes) > self.limits.max_bytes {
            self.flush()?;
        }
        for (place, (growing, column)) in self.growing.iter_mut().zip(self.set.columns()).enumerate() {
            growing.append(place, *column, piece, rows)?;
        }
        self.rows += rows.len();
        self.bytes = self.bytes.saturating_add(bytes);
        self.copied = self.copied.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Makes a record batch of the rows collected so far, if there are any.
    ///
    /// # Errors
    /// Arrow refuses the columns; the collected rows are lost then.
    pub fn flush(&mut self) -> Result<(), BatchError> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows == 0 {
            return Ok(());
        }
        let names = &mut self.names;
        let columns: Result<Vec<ArrayRef>, _> = self.growing.iter_mut().map(|column| column.finish(names)).collect();
        self.ready
            .push_back(assemble(Arc::clone(self.set.schema()), columns?, rows)?);
        Ok(())
    }

    /// The next complete record batch. After the last push, [`RowAssembler::flush`] completes the collected rows.
    pub fn poll_batch(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// The number of collected rows that are in no record batch yet.
    #[must_use]
    pub fn pending_rows(&self) -> usize {
        self.rows
    }

    /// Bytes copied so far: small batches combined, and columns that were not aligned.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied
    }
}

/// Takes the first `count` of `rows`.
fn split_off(rows: &mut Range<usize>, count: usize) -> Range<usize> {
    let end = rows.start.saturating_add(count).min(rows.end);
    let first = rows.start..end;
    rows.start = end;
    first
}
