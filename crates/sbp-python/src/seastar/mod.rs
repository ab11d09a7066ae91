//! Seastar RPC: verbs of services, streams, and a server whose handlers are Python's.

pub(crate) mod rpc;
pub(crate) mod server;
pub(crate) mod stream;
mod values;

use pyo3::prelude::*;

/// Adds what Python sees of it.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<rpc::AsyncRpc>()?;
    module.add_class::<rpc::AsyncVerb>()?;
    module.add_class::<rpc::Rpc>()?;
    module.add_class::<rpc::Verb>()?;
    module.add_class::<server::RpcCall>()?;
    module.add_class::<server::RpcServer>()?;
    module.add_class::<stream::AsyncRpcStream>()?;
    module.add_class::<stream::RpcStream>()?;
    module.add_function(wrap_pyfunction!(rpc::seastar_aio_connect, module)?)?;
    module.add_function(wrap_pyfunction!(rpc::seastar_connect, module)?)?;
    module.add_function(wrap_pyfunction!(server::seastar_result, module)?)?;
    Ok(())
}
