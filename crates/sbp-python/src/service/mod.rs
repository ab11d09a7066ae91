//! What a program starts beside its client: an embedded server, a proxy that makes trouble, the command line.

pub(crate) mod cli;
mod embedded;
pub(crate) mod proxy;
pub(crate) mod server;
