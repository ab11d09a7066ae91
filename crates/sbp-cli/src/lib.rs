//! sbp-cli
