//! `sbp tls`

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::args::{Tls, TlsAction, TlsDev};
use crate::error::CliError;
use crate::terminal::Terminal;

/// What every server of a try-out is called.
const HERE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long before now a certificate counts: clocks differ.
const SLACK: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Days that the authority counts.
const AUTHORITY_DAYS: u32 = 3_650;

pub(crate) fn run(tls: Tls, terminal: &mut Terminal) -> Result<(), CliError> {
    match tls.action {
        TlsAction::Dev(dev) => make(&dev, terminal),
    }
}

fn make(dev: &TlsDev, terminal: &mut Terminal) -> Result<(), CliError> {
    let dir = &dev.dir;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| file(dir, source))?;
    let authority = authority(dir)?;
    let names = HERE.into_iter().chain(dev.names.iter().map(String::as_str));
    let server = CertificateParams::new(names.map(str::to_owned).collect::<Vec<_>>()).map_err(failed)?;
    // Servers of a cluster are clients of each other.
    let both = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    issue(dir, "server", server, both, dev.days, &authority)?;
    let client = CertificateParams::new(vec![dev.client.clone()]).map_err(failed)?;
    let usage = vec![ExtendedKeyUsagePurpose::ClientAuth];
    issue(dir, "client", client, usage, dev.days, &authority)?;
    for (name, what) in [
        ("ca.crt", "the authority, for --tls-ca and --tls-client-ca"),
        ("ca.key", "its key: whoever has it can issue certificates"),
        ("server.crt", "the server's certificate"),
        ("server.key", "its key"),
        ("client.crt", "a client's certificate"),
        ("client.key", "its key"),
    ] {
        terminal.line(format_args!("{}  {what}", dir.join(name).display()))?;
    }
    Ok(())
}

/// The authority of the directory: the one that is there, or a new one.
fn authority(dir: &Path) -> Result<Issuer<'static, KeyPair>, CliError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "sbp tls dev");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, AUTHORITY_DAYS);
    let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    let pair = match fs::read_to_string(&key) {
        // Its name and its key are all that an issuer is.
        Ok(pem) => KeyPair::from_pem(&pem).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pair = KeyPair::generate().map_err(failed)?;
            let issued = params.self_signed(&pair).map_err(failed)?;
            write(&cert, &issued.pem(), 0o644)?;
            write(&key, &pair.serialize_pem(), 0o600)?;
            pair
        }
        Err(error) => return Err(file(&key, error)),
    };
    Ok(Issuer::new(params, pair))
}

/// Writes a certificate and its key.
fn issue(
    dir: &Path,
    name: &str,
    mut params: CertificateParams,
    usage: Vec<ExtendedKeyUsagePurpose>,
    days: u32,
    authority: &Issuer<'static, KeyPair>,
) -> Result<(), CliError> {
    params
        .distinguished_name
        .push(DnType::CommonName, format!("sbp tls dev {name}"));
    params.extended_key_usages = usage;
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, days);
    let pair = KeyPair::generate().map_err(failed)?;
    let issued = params.signed_by(&pair, authority).map_err(failed)?;
    write(&dir.join(format!("{name}.key")), &pair.serialize_pem(), 0o600)?;
    write(&dir.join(format!("{name}.crt")), &issued.pem(), 0o644)
}

fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + DAY * days).into();
}

/// Puts a file in its place whole, so that a server which looks just now sees the old one or the new one.
fn write(path: &Path, content: &str, mode: u32) -> Result<(), CliError> {
    let new = path.with_extension("new");
    let written = || {
        // One that was left behind may be open to others.
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut out = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        out.write_all(content.as_bytes())?;
        fs::rename(&new, path)
    };
    written().map_err(|source| file(path, source))
}

fn file(path: &Path, source: io::Error) -> CliError {
    CliError::File {
        path: PathBuf::from(path),
        source,
    }
}

fn failed(error: rcgen::Error) -> CliError {
    CliError::Usage(format!("cannot make a certificate: {error}"))
}
