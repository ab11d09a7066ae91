//! Servers and clients that talk to each other over TLS, and those that refuse to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod cluster;
mod mutual;
mod names;
mod setting;
mod talk;
mod trust;
mod versions;
