//! The `sbp` command inside the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line; returns its exit status.
#[pyfunction]
pub(crate) fn run_cli(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
    py.detach(|| sbp_cli::run(arguments))
}
