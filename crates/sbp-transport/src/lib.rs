//! sbp-transport
