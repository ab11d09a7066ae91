//! sbp-record
