//! sbp-session
