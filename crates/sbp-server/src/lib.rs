//! sbp-server
