//! Entries as blocks of bytes with scalars at fixed positions.

use sbp_types::{Epoch, Offset, RangeIndex, StreamId, TimestampMs};

/// An entry that is a block of `SIZE` bytes. The block's first word and, in responses, the offset of the status are
/// written by the template.
pub(crate) trait Block<const SIZE: usize>: Sized {
    /// Writes the scalars to their positions.
    fn store(&self, block: &mut [u8; SIZE]);

    /// Reads the scalars from their positions.
    fn load(block: &[u8; SIZE]) -> Self;
}

/// A little-endian scalar at a position that is constant after inlining, so that no bounds check remains.
pub(crate) trait Scalar: Copy {
    fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize);
    fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self;
}

macro_rules! integers {
    ($($int:ty)*) => {
        $(
            impl Scalar for $int {
                #[inline(always)]
                fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize) {
                    block[at..at + size_of::<Self>()].copy_from_slice(&self.to_le_bytes());
                }

                #[inline(always)]
                fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self {
                    let mut bytes = [0; size_of::<Self>()];
                    bytes.copy_from_slice(&block[at..at + size_of::<Self>()]);
                    Self::from_le_bytes(bytes)
                }
            }
        )*
    };
}

integers! { u8 i32 i64 }

macro_rules! newtypes {
    ($($name:ident)*) => {
        $(
            impl Scalar for $name {
                #[inline(always)]
                fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize) {
                    self.0.store(block, at);
                }

                #[inline(always)]
                fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self {
                    Self(Scalar::load(block, at))
                }
            }
        )*
    };
}

newtypes! { StreamId RangeIndex Epoch Offset TimestampMs }

macro_rules! optional {
    ($($name:ty: $none:expr;)*) => {
        $(
            /// -1 is `None`, as in every table.
            impl Scalar for Option<$name> {
                #[inline(always)]
                fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize) {
                    self.unwrap_or($none).store(block, at);
                }

                #[inline(always)]
                fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self {
                    let value: $name = Scalar::load(block, at);
                    (value != $none).then_some(value)
                }
            }
        )*
    };
}

optional! { i64: -1; RangeIndex: RangeIndex(-1); Epoch: Epoch(-1); Offset: Offset(-1); TimestampMs: TimestampMs(-1); }

impl Scalar for bool {
    #[inline(always)]
    fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize) {
        u8::from(self).store(block, at);
    }

    #[inline(always)]
    fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self {
        u8::load(block, at) != 0
    }
}

/// Declares the position of each field, and the values of those that a template has no room for. The positions are those
/// of the shape's vtable.
macro_rules! block {
    ($name:ident $size:literal { $($field:ident $at:literal)* } $($rest:ident = $value:expr),*) => {
        impl $crate::v01::template::blocks::Block<$size> for $name {
            #[inline(always)]
            fn store(&self, block: &mut [u8; $size]) {
                $( $crate::v01::template::blocks::Scalar::store(self.$field, block, $at); )*
            }

            #[inline(always)]
            fn load(block: &[u8; $size]) -> Self {
                Self { $( $field: $crate::v01::template::blocks::Scalar::load(block, $at), )* $( $rest: $value, )* }
            }
        }
    };
}

pub(crate) use block;
