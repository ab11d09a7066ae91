//! Batches from outside the crate: bytes, round trips, damage, columns.

mod assembler;
mod corrupt;
mod inspect;
mod layout;
mod list;
mod round_trip;
mod spark;
mod support;
