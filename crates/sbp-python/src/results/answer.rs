//! What the results of calls become in Python.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sbp_messages::{Range, RangeServerStatus};
use sbp_types::Offset;

use crate::requests::Described;
use crate::results::batch::Batch;
use crate::results::cluster::{ClusterInfo, KnownCluster, RangeInfo, RangeServerInfo};
use crate::results::stream_info::{Positions, StreamInfo};

/// The result of a call, in Rust form: it comes from the I/O thread, and an attached one makes a Python object of it.
pub(crate) trait Answer: Send + 'static {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Answer for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// Results that become one object each.
macro_rules! objects {
    ($(|$result:ident: $type:ty| $object:expr;)*) => {
        $(
            impl Answer for $type {
                fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                    let $result = self;
                    $object.into_py_any(py)
                }
            }
        )*
    };
}

objects! {
    |number: u64| number;
    |offset: Offset| offset.0;
    |time: Duration| time.as_secs_f64();
    |batch: Batch| batch;
    |stream: Arc<Described>| StreamInfo(stream);
    |range: Range| RangeInfo(range);
    |cluster: KnownCluster| ClusterInfo(cluster);
    |server: RangeServerStatus| RangeServerInfo(server);
    |positions: sbp_client::Positions| Positions::from(&positions);
}

/// A list.
impl<T: Answer> Answer for Vec<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let list = PyList::empty(py);
        for item in self {
            list.append(item.into_python(py)?)?;
        }
        list.into_py_any(py)
    }
}

/// A dict by the names of streams, in their order.
impl<T: Answer> Answer for Vec<(Arc<Described>, T)> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let by_name = PyDict::new(py);
        for (stream, item) in self {
            by_name.set_item(&*stream.name, item.into_python(py)?)?;
        }
        by_name.into_py_any(py)
    }
}
