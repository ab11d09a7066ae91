//! Certificates and keys in files, which are read again when the files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sbp_locks::Mutex;
use thiserror::Error;

use super::provider;

/// How long files are taken to be what they were, so that many connections do not cost as many looks at them.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why certificates or keys cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error("cannot read {what} in {path}: {source}", path = path.display())]
    Read {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} holds no {what}: {reason}", path = path.display())]
    Content {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A key belongs to another certificate.
    #[error("the private key in {key} is not that of the certificate in {cert}", key = key.display(), cert = cert.display())]
    Mismatch {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// Only one of the two was given.
    #[error("a certificate and its private key go together: {missing} is missing")]
    Incomplete {
        /// The one that is not there.
        missing: &'static str,
    },
    /// The name to be expected of the server is none.
    #[error("{name:?} is no name that a certificate can have; write a host name or an IP address")]
    ServerName {
        /// What was given.
        name: String,
    },
    /// The machine's own list of authorities cannot be used.
    #[error("the certificate authorities that this machine trusts cannot be read ({reason}); name a file of your own")]
    Platform {
        /// What is wrong with it.
        reason: String,
    },
    /// The cryptography refuses what the files hold.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The certificates of a file, in their order.
fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read(path, what)?;
    let content = |reason: String| TlsFileError::Content {
        what,
        path: path.to_owned(),
        reason,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| content(error.to_string()))?;
    if found.is_empty() {
        return Err(content("no block BEGIN CERTIFICATE is in it".to_owned()));
    }
    Ok(found)
}

/// The authorities of a file.
pub(super) fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, "certificates of authorities")? {
        roots.add(certificate).map_err(|error| TlsFileError::Unusable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(Arc::new(roots))
}

/// A certificate, those that lead from it to an authority, and its key.
pub(super) fn certified_key(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsFileError> {
    let chain = certificates(cert, "certificate")?;
    let what = "private key";
    let bytes = read(key, what)?;
    // The parser's error may quote what it read, and that is a secret.
    let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| TlsFileError::Content {
        what,
        path: key.to_owned(),
        reason: "a block BEGIN PRIVATE KEY that is not encrypted is needed".to_owned(),
    })?;
    match CertifiedKey::from_der(chain, private, &provider()) {
        Ok(certified) => Ok(Arc::new(certified)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsFileError::Mismatch {
            cert: cert.to_owned(),
            key: key.to_owned(),
        }),
        Err(error @ rustls::Error::InvalidCertificate(_)) => Err(TlsFileError::Unusable {
            path: cert.to_owned(),
            reason: error.to_string(),
        }),
        Err(error) => Err(TlsFileError::Unusable {
            path: key.to_owned(),
            reason: error.to_string(),
        }),
    }
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path).map_err(|source| TlsFileError::Read {
        what,
        path: path.to_owned(),
        source,
    })
}

/// What was made of files, and is made anew when they change.
#[derive(Debug)]
pub(super) struct Reloading<T> {
    files: Vec<PathBuf>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    current: Arc<T>,
    /// The files as they were when they were read last, with or without success.
    stamps: Vec<Stamp>,
    looked_at: Instant,
}

/// What changes of a file that is written or replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    place: (u64, u64),
}

impl<T> Reloading<T> {
    /// What `load` makes of these files now.
    pub(super) fn new(
        files: Vec<PathBuf>,
        load: impl FnOnce() -> Result<T, TlsFileError>,
    ) -> Result<Self, TlsFileError> {
        let stamps = stamps(&files);
        let current = Arc::new(load()?);
        let looked_at = Instant::now();
        let state = Mutex::new(State {
            current,
            stamps,
            looked_at,
        });
        Ok(Self { files, state })
    }

    /// What the files say now. What cannot be used leaves in place what there was, and is logged.
    pub(super) fn current(&self, load: impl FnOnce() -> Result<T, TlsFileError>) -> Arc<T> {
        let mut state = self.state.lock();
        if state.looked_at.elapsed() >= LOOK_AGAIN {
            // Logged where it happens.
            let _ = self.look(&mut state, load);
        }
        Arc::clone(&state.current)
    }

    /// Reads the files again if they have changed, without waiting for the next look at them.
    pub(super) fn reload(&self, load: impl FnOnce() -> Result<T, TlsFileError>) -> Result<(), TlsFileError> {
        self.look(&mut self.state.lock(), load)
    }

    fn look(&self, state: &mut State<T>, load: impl FnOnce() -> Result<T, TlsFileError>) -> Result<(), TlsFileError> {
        state.looked_at = Instant::now();
        // Before they are read: what is written meanwhile is read the next time.
        let stamps = stamps(&self.files);
        if stamps == state.stamps {
            return Ok(());
        }
        state.stamps = stamps;
        match load() {
            Ok(new) => {
                state.current = Arc::new(new);
                tracing::info!(files = ?self.files, "certificates have changed and count from the next connection on");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "certificates have changed and cannot be used; those from before stay");
                Err(error)
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| std::fs::metadata(path).map(|data| Stamp::of(&data)).unwrap_or_default();
    files.iter().map(stamp).collect()
}

impl Stamp {
    fn of(data: &std::fs::Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            modified: data.modified().ok(),
            length: data.len(),
            #[cfg(unix)]
            place: (data.dev(), data.ino()),
        }
    }
}
