//! One file for each command.

pub(crate) mod append;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod cursor;
pub(crate) mod fetch;
pub(crate) mod gateway;
pub(crate) mod import;
pub(crate) mod pages;
pub(crate) mod ping;
pub(crate) mod proxy;
pub(crate) mod range;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod verify;
