//! Seastar RPC: verbs of services, streams, and a server whose handlers are Python's.

pub(crate) mod rpc;
pub(crate) mod server;
pub(crate) mod stream;
mod values;
