//! Connections driven by tokio: over a pipe in memory with a clock that only tests move, and over loopback.

mod apps;
mod channel;
mod flushing;
mod loopback;
mod memory;
mod over_time;
mod pipe;
mod shared;
mod sockets;
