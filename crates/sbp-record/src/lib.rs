//! Record batches of the Streaming Batch Protocol: bytes in and out, and Arrow in and out.
//!
//! A batch is a head (magic, base offset, metadata) and a body in one of four encodings; its layout is in the wire
//! document, section "Record batch".
//!
//! - A server reads heads with [`inspect`], never bodies, and stamps offsets with [`stamp_base_offset`].
//! - A writer uses [`encode_raw`], [`RecordsBuilder`] or [`encode_arrow`].
//! - A reader uses [`Batch`], record by record or as columns, and [`RowAssembler`] for many batches as Arrow data.
//! - [`StreamSchema`] describes the typed columns of a stream.
//!
//! This crate does no I/O, reads no clock and needs no runtime. Bytes from a peer cannot cause a panic: they are
//! checked first and then used in place.

mod batch;
mod checksum;
mod columns;
mod compress;
mod cursor;
mod encode;
mod error;
mod fitting;
mod framing;
mod head;
mod layout;
mod list;
mod meta;
mod offsets;
mod positions;
mod record;
mod records;
mod restamp;
mod schema;
mod shared;
mod split;
mod template;
mod time;
mod typed;
mod window;

pub use batch::Batch;
pub use checksum::crc32c_of as checksum;
pub use columns::{AssemblyLimits, ColumnSet, RowAssembler, Source};
pub use compress::MAX_UNCOMPRESSED_LENGTH;
pub use encode::{EncodeOptions, PADDING, WriterStamp, encode_empty, encode_fence, encode_raw, encode_raw_head};
pub use error::{BatchError, Cause, EncodeError, FaultKind, SchemaError};
pub use fitting::largest_fitting;
pub use framing::{BATCH_MAGIC, STAMP_LENGTH, padding_after, stamp_base_offset};
pub use head::{BatchHead, FENCE, MAX_BATCH_LENGTH, inspect, without_stamp};
pub use layout::plain_type;
pub use meta::{BatchMeta, BodyEncoding, Compression};
pub use positions::Positions;
pub use record::{Headers, Payloads, Record, Records, Values};
pub use records::{RecordColumns, RecordsBuilder, SharedHeader, encode_rows, encode_values};
pub use restamp::{Stamped, stamp_writer};
pub use schema::StreamSchema;
pub use shared::make_shared;
pub use split::{SplitBatches, split_batches};
pub use time::{first_outside_calendar, is_calendar_time, other_unit};
pub use typed::encode_arrow;
pub use window::TimeWindow;
