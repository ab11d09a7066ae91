//! Certificates and keys in files, which are read again when the files change.

use std::fmt;
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
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::provider;

/// How long files are taken to be what they were, so that many connections do not cost as many looks at them.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a connection waits for a look at the files that it has begun. Others do not wait for it.
const PATIENCE: Duration = Duration::from_millis(500);

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
pub(super) struct Reloading<T>(Arc<Files<T>>);

type Load<T> = Box<dyn Fn() -> Result<T, TlsFileError> + Send + Sync>;

struct Files<T> {
    names: Vec<PathBuf>,
    load: Load<T>,
    state: Mutex<State<T>>,
    /// The files as they were when they were read last, with or without success. Locked while they are looked at, which takes
    /// as long as their disk does.
    stamps: Mutex<Vec<Stamp>>,
}

/// What may be locked by those who must not wait for the disk.
#[derive(Debug)]
struct State<T> {
    current: Arc<T>,
    looked_at: Instant,
    /// Whether a thread looks at the files.
    is_looked_at: bool,
}

/// What changes of a file that is written or replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    place: (u64, u64),
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// What `load` makes of these files now.
    pub(super) fn new(
        names: Vec<PathBuf>,
        load: impl Fn() -> Result<T, TlsFileError> + Send + Sync + 'static,
    ) -> Result<Self, TlsFileError> {
        // Before they are read: what is written meanwhile is read the next time.
        let stamps = stamps(&names);
        let state = State {
            current: Arc::new(load()?),
            looked_at: Instant::now(),
            is_looked_at: false,
        };
        Ok(Self(Arc::new(Files {
            names,
            load: Box::new(load),
            state: Mutex::new(state),
            stamps: Mutex::new(stamps),
        })))
    }

    /// What the files say now. What cannot be used leaves in place what there was, and is logged. If their disk does not
    /// answer in time, what there was counts until it does.
    pub(super) async fn current(&self) -> Arc<T> {
        if let Some(looking) = self.look_if_due()
            && timeout(PATIENCE, looking).await.is_err()
        {
            tracing::warn!(
                files = ?self.0.names,
                seconds = PATIENCE.as_secs_f64(),
                "the disk with certificates and keys does not answer; those that were read before stay until it does"
            );
        }
        self.last()
    }

    /// What the files said when they were last looked at. Waits for nothing.
    pub(super) fn last(&self) -> Arc<T> {
        Arc::clone(&self.0.state.lock().current)
    }

    /// Reads the files again if they have changed, without waiting for the next look at them.
    pub(super) fn reload(&self) -> Result<(), TlsFileError> {
        self.0.look()
    }

    /// Has a thread look at the files, unless one did lately or does. What is returned ends with the look.
    fn look_if_due(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.0.state.lock();
        if state.is_looked_at || state.looked_at.elapsed() < LOOK_AGAIN {
            return None;
        }
        state.is_looked_at = true;
        drop(state);
        let (_ended, looking) = oneshot::channel();
        let files = Arc::clone(&self.0);
        let look = Look { files, _ended };
        // Not one of the runtime, which would wait for it at its end. Without a thread the next connection tries again.
        let thread = std::thread::Builder::new().name("sbp-tls-files".to_owned());
        let _thread = thread.spawn(move || {
            // Logged where it happens.
            let _ = look.files.look();
            drop(look);
        });
        Some(looking)
    }
}

/// A look at files. Dropping this ends it.
struct Look<T> {
    files: Arc<Files<T>>,
    _ended: oneshot::Sender<()>,
}

impl<T> Drop for Look<T> {
    fn drop(&mut self) {
        let mut state = self.files.state.lock();
        state.is_looked_at = false;
        state.looked_at = Instant::now();
    }
}

impl<T> Files<T> {
    fn look(&self) -> Result<(), TlsFileError> {
        let mut before = self.stamps.lock();
        // Before they are read: what is written meanwhile is read the next time.
        let stamps = stamps(&self.names);
        if stamps == *before {
            return Ok(());
        }
        *before = stamps;
        match (self.load)() {
            Ok(new) => {
                self.state.lock().current = Arc::new(new);
                tracing::info!(files = ?self.names, "certificates have changed and count from the next connection on");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "certificates have changed and cannot be used; those from before stay");
                Err(error)
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Files<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("names", &self.names)
            .finish_non_exhaustive()
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
