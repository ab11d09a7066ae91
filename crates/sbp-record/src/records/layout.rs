//! The index at the start of a RECORDS body: record count, flags, then (offset, length) of each buffer.

/// Buffers in the order of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Timestamp,
    KeyValidity,
    KeyOffsets,
    KeyData,
    ValueValidity,
    ValueOffsets,
    ValueData,
    HeaderList,
    HeaderKeyOffsets,
    HeaderKeyData,
    HeaderValueValidity,
    HeaderValueOffsets,
    HeaderValueData,
}

/// Number of buffers in the index.
pub(crate) const SLOTS: usize = 13;
/// Record count and flags, then the index. A multiple of 16, so the first buffer may begin here.
pub(crate) const INDEX_LENGTH: usize = 8 + SLOTS * 8;
/// Buffers begin at multiples of this, counted from the body's start.
pub(crate) const BUFFER_ALIGNMENT: usize = 16;

impl Slot {
    /// The buffer's name in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::KeyValidity => "key validity",
            Self::KeyOffsets => "key offsets",
            Self::KeyData => "key data",
            Self::ValueValidity => "value validity",
            Self::ValueOffsets => "value offsets",
            Self::ValueData => "value data",
            Self::HeaderList => "header list offsets",
            Self::HeaderKeyOffsets => "header key offsets",
            Self::HeaderKeyData => "header key data",
            Self::HeaderValueValidity => "header value validity",
            Self::HeaderValueOffsets => "header value offsets",
            Self::HeaderValueData => "header value data",
        }
    }
}

/// Bytes of a bitmap with a bit for each of `items`.
pub(crate) fn bitmap_length(items: usize) -> usize {
    items.div_ceil(8)
}

// Buffers are copied between the wire and memory without conversion.
#[cfg(target_endian = "big")]
compile_error!("the wire's Arrow buffers are little-endian, and this crate does not swap them");
