//! sbp-client
