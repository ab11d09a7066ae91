//! What the Spark source needs of Rust: many streams at once, columns in and out, and the checks of a repeated task.

pub(crate) mod batch_appender;
pub(crate) mod digest;
pub(crate) mod peer_spans;
mod repeats;
mod row_bytes;
mod rows;
pub(crate) mod span_reader;
pub(crate) mod stream_queries;
mod typed_rows;
pub(crate) mod varints;
mod writer_ids;
