//! sbp-messages
