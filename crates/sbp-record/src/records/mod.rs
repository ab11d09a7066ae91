//! RECORDS bodies: many records as Arrow buffers.

mod builder;
mod column;
mod columns;
mod layout;
mod rows;
mod values;
mod view;

pub use builder::RecordsBuilder;
pub use columns::{RecordColumns, SharedHeader};
pub use rows::encode_rows;
pub use values::encode_values;
pub(crate) use view::{HeadersColumn, RecordsView};
