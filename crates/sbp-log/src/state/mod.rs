//! The state of an open log: the index, the hot tail, and the checkpoints.

pub(crate) mod folds;
#[cfg(feature = "testing")]
mod forget;
pub(crate) mod hot_tail;
pub(crate) mod index;
pub(crate) mod shared;
