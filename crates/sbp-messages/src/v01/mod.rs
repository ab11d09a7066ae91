//! Profile "v0.1": the messages as the tables of `schemas/sbp.fbs`.
//!
//! The only module that names FlatBuffers. [`Wire`] is one struct's mapping, and [`decode`] the one way from bytes to a
//! table: it verifies first.

mod append;
mod fetch;
mod heartbeat;
mod messages;
mod notices;
mod placement;
mod range_changes;
mod ranges;
mod shared;
mod stream_changes;
mod streams;
mod template;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use flatbuffers::{FlatBufferBuilder, Follow, ForwardsUOffset, Vector, Verifiable, VerifierOptions, WIPOffset};

use crate::{DecodeError, Encoder};

/// The generated tables. They share their names with the structs that they become.
use sbp_schema::v01 as fb;

/// What a message is built in; reused, so that it allocates only while it grows.
pub(crate) type Builder = FlatBufferBuilder<'static>;

/// Tables nested in tables. The schema needs five.
const MAX_DEPTH: usize = 16;
/// Tables in one header, far above what 1,024 entries need.
const MAX_TABLES: usize = 65_536;
/// What a header may seem to hold when shared objects are counted each time they are referred to: this many times its
/// length. It bounds what a small header can make a reader allocate.
const MAX_EXPANSION: usize = 4;
/// Added to [`MAX_EXPANSION`], for short headers whose entries share everything they can.
const EXPANSION_ALLOWANCE: usize = 64 * 1024;

/// One struct's mapping to its table.
pub(crate) trait Wire: Sized {
    /// The generated table.
    type Table<'a>: Follow<'a, Inner = Self::Table<'a>> + Verifiable + 'a;
    /// The table's name in the schema.
    const NAME: &'static str;

    /// Takes over what a verified table says.
    fn read(table: Self::Table<'_>) -> Self;

    /// Writes the table, scalars also at their default.
    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>>;
}

/// A builder for this profile.
pub(crate) fn new_builder() -> Builder {
    let mut builder = FlatBufferBuilder::new();
    // A reader of another generation may have other defaults: nothing is left to them.
    builder.force_defaults(true);
    builder
}

/// Verifies `header` and reads its root.
fn decode<T: Wire>(header: &[u8]) -> Result<T, DecodeError> {
    let options = VerifierOptions {
        max_depth: MAX_DEPTH,
        max_tables: MAX_TABLES,
        max_apparent_size: header
            .len()
            .saturating_mul(MAX_EXPANSION)
            .saturating_add(EXPANSION_ALLOWANCE),
        ignore_missing_null_terminator: false,
    };
    match flatbuffers::root_with_opts::<T::Table<'_>>(&options, header) {
        Ok(table) => Ok(T::read(table)),
        Err(error) => Err(DecodeError::Malformed {
            table: T::NAME,
            source: Box::new(error),
        }),
    }
}

/// Builds `message` and appends its bytes to `out`.
fn encode<T: Wire>(message: &T, encoder: &mut Encoder, out: &mut BytesMut) {
    let builder = &mut encoder.builder;
    builder.reset();
    let root = message.write(builder);
    builder.finish(root, None);
    out.extend_from_slice(builder.finished_data());
}

/// A vector of tables, as generated accessors return it.
type Tables<'a, T> = Vector<'a, ForwardsUOffset<<T as Wire>::Table<'a>>>;

/// Reads a vector of tables; absent is empty.
fn read_tables<'a, T: Wire, C: FromIterator<T>>(vector: Option<Tables<'a, T>>) -> C {
    match vector {
        // By index and not by the vector's iterator, which does not tell its length: one allocation instead of many.
        Some(vector) => (0..vector.len()).map(|index| T::read(vector.get(index))).collect(),
        None => C::from_iter([]),
    }
}

/// Writes a vector of tables.
fn write_tables<T: Wire>(items: &[T], builder: &mut Builder) -> WIPOffset<Tables<'static, T>> {
    let offsets: Vec<_> = items.iter().map(|item| item.write(builder)).collect();
    builder.create_vector(&offsets)
}

/// Reads a string; absent is empty.
fn read_string(string: Option<&str>) -> String {
    string.unwrap_or_default().to_owned()
}

/// Writes a string unless it is empty.
fn write_string(string: &str, builder: &mut Builder) -> Option<WIPOffset<&'static str>> {
    if string.is_empty() {
        None
    } else {
        Some(builder.create_string(string))
    }
}

/// Reads a byte vector; absent is empty, and an empty one allocates nothing.
fn read_bytes(vector: Option<Vector<'_, u8>>) -> Bytes {
    vector.map_or_else(Bytes::new, |vector| Bytes::copy_from_slice(vector.bytes()))
}

/// Writes a byte vector unless it is empty.
fn write_bytes(bytes: &[u8], builder: &mut Builder) -> Option<WIPOffset<Vector<'static, u8>>> {
    if bytes.is_empty() {
        None
    } else {
        Some(builder.create_vector(bytes))
    }
}
