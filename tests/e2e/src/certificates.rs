//! Certificates that a test makes for itself.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};

/// An authority, whose certificate is in a file.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    file: PathBuf,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority of this name, with its file in that directory.
    pub fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = directory.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        Self {
            issuer,
            directory: directory.to_owned(),
            file,
        }
    }

    /// The file with its certificate.
    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// A certificate for these names: host names, IP addresses, URIs and e-mail addresses. It is in files that begin with
    /// `file`; those that are there are replaced.
    pub fn issue(&self, file: &str, names: &[&str]) -> Issued {
        self.issue_changed(file, names, |_| ())
    }

    /// The same, and it has expired.
    pub fn issue_expired(&self, file: &str, names: &[&str]) -> Issued {
        self.issue_changed(file, names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 2, 3);
        })
    }

    fn issue_changed(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let issued = Issued {
            cert: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        replace(&issued.cert, &certificate.pem());
        replace(&issued.key, &key.serialize_pem());
        issued
    }
}

fn alternative(name: &str) -> SanType {
    if let Ok(address) = name.parse() {
        return SanType::IpAddress(address);
    }
    let text = name.try_into().unwrap();
    match name {
        _ if name.contains("://") => SanType::URI(text),
        _ if name.contains('@') => SanType::Rfc822Name(text),
        _ => SanType::DnsName(text),
    }
}

/// As programs do that renew certificates: nobody sees half a file.
fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, path).unwrap();
}
