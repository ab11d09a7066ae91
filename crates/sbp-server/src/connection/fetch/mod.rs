//! FETCH: streamed answers and long poll.
//!
//! Each entry of a call gets exactly one result. What can be answered when the call arrives goes into the first frame;
//! the rest waits for its stream to grow, and goes into further frames under the same call, until everything is answered
//! or the call's time is up. [`Fetches`] holds the calls of one connection, [`call::FetchCall`] one of them,
//! [`ReadJob`](crate::range::ReadJob) the part that may touch the disk.

mod call;
mod changed_entries;
mod fetches;
mod frames;

pub(super) use fetches::{FetchTurn, Fetches};
