//! What servers and clients take of memory, in a process that does nothing else: one of these looks at all of it.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod allocations;
mod answers;
mod scrape;
