//! Record batches of the Streaming Batch Protocol: bytes in and out, and Arrow in and out.
//!
//! A batch is a head (magic, base offset, metadata) and a body in one of four encodings. A server reads heads with
//! [`inspect`] and never a body. A client writes batches with [`encode_raw`] and [`RecordsBuilder`]. What a batch looks
//! like is in the wire document, section "Record batch".
//!
//! Nothing here does I/O, reads a clock or knows a runtime. Bytes from a peer cannot panic: they are judged first, then
//! used where they lie.

mod checksum;
mod compress;
mod cursor;
mod encode;
mod error;
mod head;
mod list;
mod meta;
mod records;
mod split;
mod template;

pub use compress::MAX_UNCOMPRESSED_LENGTH;
pub use encode::{EncodeOptions, PADDING, WriterStamp, encode_empty, encode_raw, encode_raw_head};
pub use error::{BatchError, Cause, EncodeError, FaultKind, SchemaError};
pub use head::{
    BATCH_MAGIC, BatchHead, MAX_BATCH_LENGTH, STAMP_LENGTH, inspect, padding_after, stamp_base_offset, without_stamp,
};
pub use meta::{BatchMeta, BodyEncoding, Compression};
pub use records::RecordsBuilder;
pub use split::{SplitBatches, split_batches};
