//! How long things took.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_client::ClientMetrics;
use sbp_python_macros::stub_docs;
use sbp_types::Durations;

#[stub_docs]
#[pyclass(frozen, eq, module = "sbp_native", name = "Histogram")]
#[derive(PartialEq, Eq)]
pub(crate) struct Histogram(pub(crate) Durations);

#[stub_docs]
#[pymethods]
impl Histogram {
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[getter]
    fn sum(&self) -> f64 {
        self.0.sum()
    }

    #[getter]
    fn buckets(&self) -> Vec<(f64, u64)> {
        let mut below = 0;
        let cumulated = self.0.buckets().map(|(bound, count)| {
            below += count;
            (bound, below)
        });
        cumulated.collect()
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        self.0.quantile(share)
    }

    fn since(&self, before: &Self) -> Self {
        Self(self.0.since(&before.0))
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.Histogram of {} durations, {} s together>",
            self.0.count(),
            self.0.sum()
        )
    }
}

/// Those of a client, by their names.
pub(crate) fn of_client<'py>(py: Python<'py>, metrics: &ClientMetrics) -> PyResult<Bound<'py, PyDict>> {
    let histograms = PyDict::new(py);
    let ClientMetrics {
        append,
        fetch,
        fetch_wait,
        call,
    } = *metrics;
    for (name, durations) in [
        ("append_seconds", append),
        ("fetch_seconds", fetch),
        ("fetch_wait_seconds", fetch_wait),
        ("call_seconds", call),
    ] {
        histograms.set_item(name, Histogram(durations))?;
    }
    Ok(histograms)
}
