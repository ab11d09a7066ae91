//! Appends on their way in: from what a caller gives to encoded batches that the client takes.

pub(crate) mod encode;
pub(crate) mod input;
pub(crate) mod keys_and_headers;
pub(crate) mod prepared;
