//! The encoder of messages.

use std::fmt;

use flatbuffers::FlatBufferBuilder;

/// The builder of a message, reused so that it allocates only while it grows.
pub(crate) type Builder = FlatBufferBuilder<'static>;

/// A reusable encoder, one per connection. Encoding allocates nothing once its buffer has grown.
pub struct Encoder {
    pub(crate) builder: Builder,
}

impl Encoder {
    /// An encoder for the profile "v0.1".
    #[must_use]
    pub fn new() -> Self {
        let mut builder = FlatBufferBuilder::new();
        // All fields are written: a peer of another revision may have other defaults.
        builder.force_defaults(true);
        Self { builder }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}
