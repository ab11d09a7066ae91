//! ARROW bodies: the typed columns of a stream with a schema, as one Arrow IPC RecordBatch message.

mod column;
mod encode;
mod view;

pub use encode::encode_arrow;
pub(crate) use view::TypedView;
