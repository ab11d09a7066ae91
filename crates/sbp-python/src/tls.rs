//! What a client or a server is told of TLS.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sbp_client::ClientTlsFiles;
use sbp_python_macros::stub_docs;
use sbp_server::ServerTlsFiles;

use crate::errors;

#[stub_docs]
#[pyclass(frozen, eq, hash, from_py_object, module = "sbp_native", name = "Tls")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

impl Tls {
    /// What the environment says, as for `sbp`.
    pub(crate) fn of_environment() -> Option<Self> {
        let path = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let tls = Self {
            ca: path("SBP_TLS_CA"),
            cert: path("SBP_TLS_CERT"),
            key: path("SBP_TLS_KEY"),
            server_name: std::env::var("SBP_TLS_SERVER_NAME")
                .ok()
                .filter(|name| !name.is_empty()),
        };
        (tls != Self::default()).then_some(tls)
    }

    /// For a client.
    pub(crate) fn client(&self) -> ClientTlsFiles {
        ClientTlsFiles {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            server_name: self.server_name.clone(),
        }
    }

    /// For a server: the authorities are those of its clients.
    pub(crate) fn server(&self, py: Python<'_>) -> PyResult<ServerTlsFiles> {
        match self {
            Self {
                server_name: Some(_), ..
            } => Err(errors::bad_server_config(
                py,
                "server_name is what a client expects of a server; a server takes cert, key, and ca for its clients",
            )),
            Self {
                cert: Some(cert),
                key: Some(key),
                ca,
                ..
            } => Ok(ServerTlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: ca.clone(),
            }),
            _ => Err(errors::bad_server_config(py, "a server with TLS needs cert and key")),
        }
    }
}

fn text(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.to_string_lossy().into_owned())
}

#[stub_docs]
#[pymethods]
impl Tls {
    #[new]
    #[pyo3(signature = (*, ca = None, cert = None, key = None, server_name = None))]
    fn new(
        ca: Option<PathBuf>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        server_name: Option<String>,
    ) -> PyResult<Self> {
        if cert.is_some() != key.is_some() {
            return Err(PyValueError::new_err(
                "cert and key go together: a certificate and its private key",
            ));
        }
        Ok(Self {
            ca,
            cert,
            key,
            server_name,
        })
    }

    #[getter]
    fn ca(&self) -> Option<String> {
        text(self.ca.as_ref())
    }

    #[getter]
    fn cert(&self) -> Option<String> {
        text(self.cert.as_ref())
    }

    #[getter]
    fn key(&self) -> Option<String> {
        text(self.key.as_ref())
    }

    #[getter]
    fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item("ca", self.ca.as_ref())?;
        keywords.set_item("cert", self.cert.as_ref())?;
        keywords.set_item("key", self.key.as_ref())?;
        keywords.set_item("server_name", self.server_name.as_ref())?;
        Ok((PyTuple::empty(py), keywords))
    }

    fn __repr__(&self) -> String {
        let named = [
            ("ca", text(self.ca.as_ref())),
            ("cert", text(self.cert.as_ref())),
            ("key", text(self.key.as_ref())),
            ("server_name", self.server_name.clone()),
        ];
        let told: Vec<_> = named
            .iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value:?}")))
            .collect();
        format!("Tls({})", told.join(", "))
    }
}
