//! One file for each command.

pub(crate) mod append;
pub(crate) mod fetch;
pub(crate) mod ping;
pub(crate) mod serve;
pub(crate) mod stream;
