//! sbp-frame
