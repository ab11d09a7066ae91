//! TLS on both sides of a connection: certificates from files that are read again when they change, handshakes, and what
//! their failures mean in words.
//!
//! TLS 1.3 and 1.2 by `rustls`. Sessions are not resumed: each connection proves anew who its two ends are, so that a
//! certificate that is replaced or has expired counts from the next connection on.

mod certificate;
mod client;
mod failure;
mod files;
mod read_ahead;
mod server;

pub use client::{ClientTls, ClientTlsFiles};
pub use failure::TlsFailure;
pub(crate) use failure::refusal;
pub use files::TlsFileError;
pub(crate) use read_ahead::ReadAhead;
pub use server::{ServerTls, ServerTlsFiles};

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// What is spoken inside TLS, as both sides name it in their handshake (RFC 7301).
const ALPN: &[u8] = b"sbp/0.1";

/// The cryptography, one for all: never that of the process, which another library may have set.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())))
}
