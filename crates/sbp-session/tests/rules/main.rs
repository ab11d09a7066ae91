//! The rules of a connection, from outside: bytes and time in, events and bytes out.

mod authentication;
mod bad_input;
mod calls;
mod checks;
mod chunkings;
mod endpoints;
mod going_away;
mod limits;
mod pair;
mod random;
mod receiving;
mod script;
mod slow;
mod splits;
mod time;
