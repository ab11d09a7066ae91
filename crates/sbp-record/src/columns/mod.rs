//! Batches as Arrow columns: column sets, views of one batch, and combining several.

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
