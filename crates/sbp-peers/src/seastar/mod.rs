//! Seastar RPC: a client of services, and a server for their clients.
//!
//! [`Rpc`] calls verbs over one connection, made when there is something to say and again when it is lost. [`RpcServer`] hands
//! each call to a [`Handler`]. Both have [`Stream`]s, each on a connection of its own.

mod batch;
mod client;
mod connection;
mod error;
mod server;
mod serving;
mod stream;

pub use batch::{CallResult, ReplySink, SinkReply, Submission};
pub use client::{Rpc, RpcConfig};
pub use error::{SeastarError, SeastarErrorKind};
pub use sbp_seastar::{ArgumentError, Codec, Exception, Fault, ServerConfig, Signature, SignatureError, Type, Value};
pub use sbp_transport::{HostConfig, HostError};
pub use server::RpcServer;
pub use serving::{ClientInfo, Handler, Incoming, reply_all};
pub use stream::Stream;
