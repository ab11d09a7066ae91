//! FETCH: streamed answers and long poll.
//!
//! Each entry of a call gets exactly one result. What can be answered when the call arrives goes into the first frame.
//! The remaining entries wait for their streams to grow and are answered in further frames of the same call, until all
//! are answered or the call's time is up. [`Fetches`] holds the calls of one connection, [`call::FetchCall`] is one of
//! them, [`ReadJob`](crate::range::ReadJob) is the part that may read from the disk.

mod call;
mod changed_entries;
mod fetches;
mod frames;

pub(super) use fetches::{Fetches, is_withdrawal};
