//! Profile "v0.1": the messages as the tables of `schemas/sbp.fbs`.
//!
//! Only this module and [`Encoder`] name FlatBuffers. [`Wire`] is the mapping of one struct, which the macro
//! [`tables!`] makes from the struct's fields, each of which is a [`Field`]. Every header goes through [`decode`],
//! which verifies it first.

mod field;
mod status;
mod table;
pub(crate) mod template;
#[cfg(test)]
mod tests;

use bytes::BytesMut;
use flatbuffers::{Follow, Verifiable, VerifierOptions, WIPOffset};

use crate::{DecodeError, Encoder};

pub(crate) use crate::encoder::Builder;
pub(crate) use field::Field;
/// The generated tables. They share their names with the structs that they become.
pub(crate) use sbp_schema::v01 as fb;
pub(crate) use table::{column, message, tables};
pub(crate) use template::{decode_templated, encode_templated};

/// The deepest nesting of tables; the schema needs five levels.
const MAX_DEPTH: usize = 16;
/// The most tables in a header, far above what 1,024 entries need.
const MAX_TABLES: usize = 65_536;
/// The most bytes that a header may describe, as a multiple of its length, if shared objects are counted each time they
/// are referred to. This bounds the memory that a small header can make a reader allocate.
const MAX_EXPANSION: usize = 4;
/// Added to [`MAX_EXPANSION`], for short headers whose entries share everything they can.
const EXPANSION_ALLOWANCE: usize = 64 * 1024;

/// The position of a struct's table in a header that is being built.
pub(crate) type Written<T> = WIPOffset<<T as Wire>::Table<'static>>;

/// The mapping of a struct to its table.
pub(crate) trait Wire: Sized {
    /// The generated table.
    type Table<'a>: Follow<'a, Inner = Self::Table<'a>> + Verifiable + 'a;
    /// The table's name in the schema.
    const NAME: &'static str;

    /// Converts a verified table to the struct.
    fn read(table: Self::Table<'_>) -> Self;

    /// Writes the table, including scalars that have their default.
    fn write(&self, builder: &mut Builder) -> Written<Self>;
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
