//! An entry as a block of bytes: which scalar is where.

use sbp_types::{Epoch, Offset, RangeIndex, StreamId, TimestampMs};

use crate::{AppendInfo, AppendResult, FetchInfo, FetchResult, Status};

/// An entry that is a block of `SIZE` bytes. The block's first word, and in responses the offset of the status, are not
/// its own.
pub(super) trait Block<const SIZE: usize>: Sized {
    /// Puts the scalars into their places.
    fn store(&self, block: &mut [u8; SIZE]);

    /// Takes the scalars from their places.
    fn load(block: &[u8; SIZE]) -> Self;
}

/// A scalar, little-endian at a place that is a constant where this is called, so that no check remains.
trait Scalar: Copy {
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
    ($($name:ident)*) => {
        $(
            /// -1 is `None`, as in every table.
            impl Scalar for Option<$name> {
                #[inline(always)]
                fn store<const SIZE: usize>(self, block: &mut [u8; SIZE], at: usize) {
                    self.unwrap_or($name(-1)).store(block, at);
                }

                #[inline(always)]
                fn load<const SIZE: usize>(block: &[u8; SIZE], at: usize) -> Self {
                    let value: $name = Scalar::load(block, at);
                    (value != $name(-1)).then_some(value)
                }
            }
        )*
    };
}

optional! { RangeIndex Epoch Offset TimestampMs }

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

/// Says once where each field is. The places are those of the shape's vtable.
macro_rules! block {
    ($name:ident $size:literal { $($field:ident $at:literal)* } $($rest:ident)?) => {
        impl Block<$size> for $name {
            #[inline(always)]
            fn store(&self, block: &mut [u8; $size]) {
                $( self.$field.store(block, $at); )*
            }

            #[inline(always)]
            fn load(block: &[u8; $size]) -> Self {
                Self { $( $field: Scalar::load(block, $at), )* $( $rest: Status::success(), )? }
            }
        }
    };
}

block! { AppendInfo 40 {
    request_index 4 batch_length 8 range_index 12 stream_id 16 epoch 24 expected_offset 32
} }

block! { FetchInfo 48 {
    request_index 4 batch_max_bytes 8 stream_id 16 fetch_offset 24 end_offset 32 start_timestamp_ms 40
} }

block! { AppendResult 56 {
    request_index 4 duplicate 12 stream_id 16 base_offset 24 stream_append_time_ms 32 next_offset 40 next_sequence 48
} status }

block! { FetchResult 64 {
    request_index 4 batch_length 8 end_of_range 16 record_count 20 stream_id 24 base_offset 32 next_offset 40
    start_offset 48 high_watermark 56
} status }
