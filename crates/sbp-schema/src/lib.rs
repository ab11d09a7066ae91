//! sbp-schema
