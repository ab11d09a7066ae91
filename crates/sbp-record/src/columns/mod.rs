//! Batches as Arrow columns: which columns there are, views of one batch, and coalescing of many.

mod arrays;
mod assembler;
mod growing;
mod names;
mod of_batch;
mod piece;
mod set;

pub use assembler::{AssemblyLimits, RowAssembler};
pub use piece::Source;
pub use set::ColumnSet;
pub(crate) use set::plain_columns;
