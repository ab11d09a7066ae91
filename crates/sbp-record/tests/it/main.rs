//! Batches from outside the crate: bytes, round trips, damage, columns.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first surprise, in its helpers too"
)]

mod assembler;
mod corrupt;
mod documents;
mod foreign;
mod inspect;
mod layout;
mod list;
mod positions;
#[path = "../../../../tests/vectors/reader.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod reader;
mod round_trip;
mod rows;
mod spark;
mod support;
mod vectors;
