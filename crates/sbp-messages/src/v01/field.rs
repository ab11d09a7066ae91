//! The types of fields, each with its encoding and its value when absent.

use bytes::Bytes;
use flatbuffers::{ForwardsUOffset, Vector, WIPOffset};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId, StreamIdentity, TimestampMs};
use smallvec::SmallVec;

use super::{Builder, Wire, Written, fb};
use crate::{ClientRole, ReplicaEntry, ReplicaState, SealKind, ServerState, Status, Token};

/// A vector of tables, as generated accessors return it.
type Tables<'a, T> = Vector<'a, ForwardsUOffset<<T as Wire>::Table<'a>>>;

/// A value in a field of a table.
///
/// | type of the field | on the wire | absent |
/// | --- | --- | --- |
/// | numbers, `bool`, their newtypes, enumerations | a scalar, always written unless the schema calls it `null` | the schema's default |
/// | `Option` of a number | a scalar, -1 for `None`, likewise | the schema's default |
/// | `u32` | the same bits as a signed number, likewise | the schema's default |
/// | `Option` of a table | the table, if there is one | `None` |
/// | [`Status`] | the table, always written | success |
/// | `Vec`, `SmallVec` of tables | a vector, always written | empty |
/// | `Option<Vec>` of tables, `Option<Bytes>` | a vector, also an empty one | `None` |
/// | `String`, [`Token`], [`Bytes`], `Vec<ServerId>`, `Vec<Offset>` | written unless it is empty | empty |
/// | `Option<StreamIdentity>` | 16 bytes | `None`, as with any other number of bytes |
#[diagnostic::on_unimplemented(
    message = "a message has no field of type `{Self}`",
    label = "this type has no form on the wire",
    note = "`v01/field.rs` lists the types that have one; another table is nested as `Option<Table>` or `Vec<Table>`"
)]
pub(crate) trait Field: Sized {
    /// What the generated accessor of the field returns.
    type Read<'a>;
    /// What the generated code builds the field from.
    type Written;

    /// Converts the value that was read.
    fn read(read: Self::Read<'_>) -> Self;

    /// Writes the objects that the table will refer to.
    fn write(&self, builder: &mut Builder) -> Self::Written;

    /// The value of an absent field with this default in the schema.
    fn absent(default: Self::Written) -> Self;
}

/// Implements [`Field`] for a type in a scalar field: how it is read and written.
macro_rules! scalar {
    ($ours:ty, $wire:ty, |$read:ident| $reading:expr, |$value:ident| $writing:expr) => {
        impl Field for $ours {
            type Read<'a> = $wire;
            type Written = $wire;

            #[inline]
            fn read($read: $wire) -> Self {
                $reading
            }

            #[inline]
            fn write(&self, _: &mut Builder) -> $wire {
                let $value = *self;
                $writing
            }

            #[inline]
            fn absent(default: $wire) -> Self {
                Self::read(default)
            }
        }
    };
}

/// Numbers as they are.
macro_rules! numbers {
    ($($number:ty)*) => { $( scalar! { $number, $number, |read| read, |value| value } )* };
}

/// Newtypes of numbers.
macro_rules! newtypes {
    ($($name:ident($number:ty))*) => { $( scalar! { $name, $number, |read| $name(read), |value| value.0 } )* };
}

/// Enumerations, which are newtypes here and in the generated code.
macro_rules! enumerations {
    ($($name:ident)*) => { $( scalar! { $name, fb::$name, |read| $name(read.0), |value| fb::$name(value.0) } )* };
}

/// Numbers that a peer may leave out, encoded as -1. Other negative numbers have no meaning, and are kept so that they
/// can be refused.
macro_rules! optional {
    ($($name:ident($number:ty))*) => { $( scalar! {
        Option<$name>, $number, |read| (read != -1).then_some($name(read)), |value| value.map_or(-1, |value| value.0)
    } )* };
}

numbers! { bool i8 i16 i32 i64 }
newtypes! { StreamId(i64) RangeIndex(i32) Epoch(i64) Offset(i64) TimestampMs(i64) ServerId(i32) }
optional! { StreamId(i64) RangeIndex(i32) Epoch(i64) Offset(i64) TimestampMs(i64) }
scalar! { Option<i8>, i8, |read| (read != -1).then_some(read), |value| value.unwrap_or(-1) }
scalar! { Option<i64>, i64, |read| (read != -1).then_some(read), |value| value.unwrap_or(-1) }
// Counts that are never negative. What a peer says below 0 is above `i32::MAX` here, so that it can be refused.
scalar! { u32, i32, |read| read.cast_unsigned(), |value| value.cast_signed() }
enumerations! { ClientRole SealKind ReplicaEntry ReplicaState ServerState }

impl<T: Wire> Field for Option<T> {
    type Read<'a> = Option<T::Table<'a>>;
    type Written = Option<Written<T>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.map(T::read)
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        self.as_ref().map(|table| table.write(builder))
    }

    fn absent(_: Self::Written) -> Self {
        None
    }
}

impl Field for Status {
    type Read<'a> = Option<fb::Status<'a>>;
    type Written = Option<Written<Self>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.map_or_else(Self::success, <Self as Wire>::read)
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        Some(Wire::write(self, builder))
    }

    fn absent(_: Self::Written) -> Self {
        Self::success()
    }
}

/// Vectors of tables.
macro_rules! vectors {
    ($($vector:ty)*) => { $(
        impl<T: Wire> Field for $vector {
            type Read<'a> = Option<Tables<'a, T>>;
            type Written = Option<WIPOffset<Tables<'static, T>>>;

            fn read(read: Self::Read<'_>) -> Self {
                read_tables(read)
            }

            fn write(&self, builder: &mut Builder) -> Self::Written {
                Some(write_tables(self, builder))
            }

            fn absent(_: Self::Written) -> Self {
                Self::new()
            }
        }
    )* };
}

vectors! { Vec<T> SmallVec<[T; 1]> }

impl<T: Wire> Field for Option<Vec<T>> {
    type Read<'a> = Option<Tables<'a, T>>;
    type Written = Option<WIPOffset<Tables<'static, T>>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.map(|tables| read_tables(Some(tables)))
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        self.as_ref().map(|tables| write_tables(tables, builder))
    }

    fn absent(_: Self::Written) -> Self {
        None
    }
}

impl Field for String {
    type Read<'a> = Option<&'a str>;
    type Written = Option<WIPOffset<&'static str>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.unwrap_or_default().to_owned()
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        (!self.is_empty()).then(|| builder.create_string(self))
    }

    fn absent(_: Self::Written) -> Self {
        Self::new()
    }
}

impl Field for Token {
    type Read<'a> = Option<&'a str>;
    type Written = Option<WIPOffset<&'static str>>;

    fn read(read: Self::Read<'_>) -> Self {
        Self::new(read.unwrap_or_default())
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        (!self.is_empty()).then(|| builder.create_string(self.secret()))
    }

    fn absent(_: Self::Written) -> Self {
        Self::default()
    }
}

impl Field for Bytes {
    type Read<'a> = Option<Vector<'a, u8>>;
    type Written = Option<WIPOffset<Vector<'static, u8>>>;

    fn read(read: Self::Read<'_>) -> Self {
        // Empty bytes allocate nothing.
        read.map_or_else(Self::new, |bytes| Self::copy_from_slice(bytes.bytes()))
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        (!self.is_empty()).then(|| builder.create_vector(self))
    }

    fn absent(_: Self::Written) -> Self {
        Self::new()
    }
}

impl Field for Option<Bytes> {
    type Read<'a> = Option<Vector<'a, u8>>;
    type Written = Option<WIPOffset<Vector<'static, u8>>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.map(|bytes| Bytes::copy_from_slice(bytes.bytes()))
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        self.as_ref().map(|bytes| builder.create_vector(bytes))
    }

    fn absent(_: Self::Written) -> Self {
        None
    }
}

/// Vectors of numbers.
macro_rules! numbers {
    ($($ours:ident($number:ty))*) => {$(
        impl Field for Vec<$ours> {
            type Read<'a> = Option<Vector<'a, $number>>;
            type Written = Option<WIPOffset<Vector<'static, $number>>>;

            fn read(read: Self::Read<'_>) -> Self {
                read.map_or_else(Self::new, |numbers| numbers.iter().map($ours).collect())
            }

            fn write(&self, builder: &mut Builder) -> Self::Written {
                let numbers: Vec<$number> = self.iter().map(|one| one.0).collect();
                (!numbers.is_empty()).then(|| builder.create_vector(&numbers))
            }

            fn absent(_: Self::Written) -> Self {
                Self::new()
            }
        }
    )*};
}

numbers! { ServerId(i32) Offset(i64) }

impl Field for Option<StreamIdentity> {
    type Read<'a> = Option<Vector<'a, u8>>;
    type Written = Option<WIPOffset<Vector<'static, u8>>>;

    fn read(read: Self::Read<'_>) -> Self {
        read.and_then(|bytes| bytes.bytes().try_into().ok()).map(StreamIdentity)
    }

    fn write(&self, builder: &mut Builder) -> Self::Written {
        self.map(|identity| builder.create_vector(&identity.0))
    }

    fn absent(_: Self::Written) -> Self {
        None
    }
}

fn read_tables<T: Wire, C: FromIterator<T>>(vector: Option<Tables<'_, T>>) -> C {
    match vector {
        // By index, because the vector's iterator does not state its length: this allocates once instead of many times.
        Some(vector) => (0..vector.len()).map(|index| T::read(vector.get(index))).collect(),
        None => C::from_iter([]),
    }
}

fn write_tables<T: Wire>(items: &[T], builder: &mut Builder) -> WIPOffset<Tables<'static, T>> {
    let offsets: Vec<_> = items.iter().map(|item| item.write(builder)).collect();
    builder.create_vector(&offsets)
}
