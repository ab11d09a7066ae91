//! What a writer reports.

use std::sync::Arc;

use pyo3::prelude::*;
use sbp_client::Delivery;
use sbp_python_macros::stub_docs;

use crate::errors;
use crate::results::ack::Ack;

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "DeliveryReport")]
pub(crate) struct DeliveryReport {
    stream: Arc<str>,
    delivery: Delivery,
}

impl DeliveryReport {
    /// The report of a delivery to the stream of that name.
    pub(crate) fn new(stream: Arc<str>, delivery: Delivery) -> Self {
        Self { stream, delivery }
    }
}

#[stub_docs]
#[pymethods]
impl DeliveryReport {
    #[getter]
    fn first_sequence(&self) -> i64 {
        self.delivery.first_sequence
    }

    #[getter]
    fn last_sequence(&self) -> i64 {
        self.delivery.last_sequence
    }

    #[getter]
    fn ack(&self) -> Option<Ack> {
        let ack = self.delivery.result.as_ref().ok()?;
        Some(Ack::new(Arc::clone(&self.stream), *ack))
    }

    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.delivery.result.as_ref().err()?;
        let error = errors::from_client(py, error.clone(), Some(&self.stream));
        Some(error.into_value(py).into_bound(py).into_any())
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.delivery.last_sequence - self.delivery.first_sequence + 1).unwrap_or(0)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let outcome = match &self.delivery.result {
            Ok(ack) => ack.to_string(),
            Err(error) => format!("failed: {error}"),
        };
        format!(
            "<sbp_native.DeliveryReport of records {} to {} of {:?}: {outcome}>",
            self.delivery.first_sequence, self.delivery.last_sequence, self.stream
        )
    }
}
