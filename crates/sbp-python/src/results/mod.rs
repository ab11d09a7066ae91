//! The objects that calls return: values, which know no client.

pub(crate) mod ack;
pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod cluster;
pub(crate) mod delivery;
pub(crate) mod histogram;
mod html;
pub(crate) mod record;
pub(crate) mod stream_info;
