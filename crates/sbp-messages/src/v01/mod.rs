//! Profile "v0.1": the messages as the tables of `schemas/sbp.fbs`.
//!
//! The only module that names FlatBuffers. [`Wire`] is one struct's mapping, which the macro [`tables!`] makes of the
//! struct's fields, each of which is a [`Field`]. [`decode`] is the one way from bytes to a table: it verifies first.

mod by_hand;
mod field;
mod table;
mod template;
#[cfg(test)]
mod tests;

use bytes::BytesMut;
use flatbuffers::{FlatBufferBuilder, Follow, Verifiable, VerifierOptions, WIPOffset};

use crate::{DecodeError, Encoder};

pub(crate) use field::Field;
/// The generated tables. They share their names with the structs that they become.
pub(crate) use sbp_schema::v01 as fb;
pub(crate) use table::{message, tables};
pub(crate) use template::{decode_templated, encode_templated};

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

/// Where the table of a struct begins, in a header that is being built.
pub(crate) type Written<T> = WIPOffset<<T as Wire>::Table<'static>>;

/// One struct's mapping to its table.
pub(crate) trait Wire: Sized {
    /// The generated table.
    type Table<'a>: Follow<'a, Inner = Self::Table<'a>> + Verifiable + 'a;
    /// The table's name in the schema.
    const NAME: &'static str;

    /// Takes over what a verified table says.
    fn read(table: Self::Table<'_>) -> Self;

    /// Writes the table, scalars also at their default.
    fn write(&self, builder: &mut Builder) -> Written<Self>;
}

/// A builder for this profile.
pub(crate) fn new_builder() -> Builder {
    let mut builder = FlatBufferBuilder::new();
    // A reader of another generation may have other defaults: nothing is left to them.
    builder.force_defaults(true);
    builder
}

/// Verifies `header` and reads its root.
pub(crate) fn decode<T: Wire>(header: &[u8]) -> Result<T, DecodeError> {
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
pub(crate) fn encode<T: Wire>(message: &T, encoder: &mut Encoder, out: &mut BytesMut) {
    let builder = &mut encoder.builder;
    builder.reset();
    let root = message.write(builder);
    builder.finish(root, None);
    out.extend_from_slice(builder.finished_data());
}
