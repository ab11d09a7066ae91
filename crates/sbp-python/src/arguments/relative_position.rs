//! Places that are counted from an end of a stream.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sbp_client::Position;
use sbp_python_macros::stub_docs;

#[stub_docs]
#[pyclass(frozen, eq, hash, module = "sbp_native", name = "Relative")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Relative {
    anchor: Anchor,
    records: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Anchor {
    Earliest,
    Latest,
}

impl Relative {
    pub(crate) fn position(&self) -> Position {
        match self.anchor {
            Anchor::Earliest => Position::AfterEarliest(self.records),
            Anchor::Latest => Position::BeforeLatest(self.records),
        }
    }
}

#[stub_docs]
#[pymethods]
impl Relative {
    #[new]
    fn new(anchor: &str, records: i64) -> PyResult<Self> {
        let wrong = || {
            PyValueError::new_err(format!(
                "Relative is (\"earliest\", records from 0) or (\"latest\", records up to 0), not ({anchor:?}, {records})"
            ))
        };
        let anchor_found = match anchor {
            "earliest" if records >= 0 => Anchor::Earliest,
            "latest" if records <= 0 => Anchor::Latest,
            _ => return Err(wrong()),
        };
        Ok(Self {
            anchor: anchor_found,
            records: records.unsigned_abs(),
        })
    }

    #[getter]
    fn anchor(&self) -> &'static str {
        match self.anchor {
            Anchor::Earliest => "earliest",
            Anchor::Latest => "latest",
        }
    }

    #[getter]
    fn records(&self) -> i64 {
        let records = i64::try_from(self.records).unwrap_or(i64::MAX);
        match self.anchor {
            Anchor::Earliest => records,
            Anchor::Latest => -records,
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (&'static str, i64))> {
        let this = slf.get();
        Ok((slf.get_type().into_any(), (this.anchor(), this.records())))
    }

    fn __repr__(&self) -> String {
        format!("Relative({:?}, {})", self.anchor(), self.records())
    }
}
