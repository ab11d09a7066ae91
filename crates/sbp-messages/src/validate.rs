//! Checks of a peer's message before anything is done.
//!
//! There are two kinds of fault. A [`Refusal`](crate::Refusal) says that the message as a whole makes no sense: indices
//! of entries that do not exist, lengths that do not add up. Nothing of it is done. A *fault* concerns one entry; it
//! becomes the status of that entry's result, and the other entries are served.

mod address;
mod entries;
mod structure;
#[cfg(test)]
mod tests;
mod times;

pub use address::{AddressFault, check_address};
pub use entries::is_valid_stream_name;
pub use structure::MAX_ENTRIES;
pub use times::{requested_timeout, throttle_time};
