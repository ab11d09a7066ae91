//! sbp-log
