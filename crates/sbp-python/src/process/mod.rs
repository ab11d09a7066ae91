//! What a process has once: its I/O runtime, the threads that wait for it, its log, and what a fork does to them.

pub(crate) mod blocking;
pub(crate) mod fork;
pub(crate) mod logging;
pub(crate) mod owned;
pub(crate) mod runtime;
