//! sbp-python
