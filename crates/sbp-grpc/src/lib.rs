//! Calls of gRPC services with one request and one answer, for both ends.
//!
//! A [`Channel`] leads to one address, over connections of `sbp-transport`, with its TLS. It has one connection at most, made
//! when it is needed, over which calls go side by side. [`serve`] answers what is asked over one connection, whatever it is made
//! of.

mod client;
mod server;

pub use client::{CallError, Channel, path};
pub use server::{Service, ServiceLimits, serve};
pub use tonic::{Code, Status};
