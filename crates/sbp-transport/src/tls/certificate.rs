//! What people want to know of a certificate.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Names of a certificate that are told; one may hold thousands.
const NAMES_TOLD: usize = 8;
/// Characters of a name that are told: it may be a peer's.
const NAME_LENGTH: usize = 200;

/// A certificate in words: whom it names, who issued it, and from when to when it counts.
pub(super) fn describe(certificate: &[u8]) -> String {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return "a certificate that cannot be read".to_owned();
    };
    let mut text = match alternative_names(&parsed).as_slice() {
        [] => format!("the certificate of {:?}", printable(&parsed.subject().to_string())),
        names => format!("the certificate for {}", list(names)),
    };
    let issuer = printable(&parsed.issuer().to_string());
    let validity = parsed.validity();
    let (from, until) = (validity.not_before, validity.not_after);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        " (issued by {issuer:?}, valid from {} to {})",
        date(from),
        date(until)
    );
    text
}

/// Who a certificate is of: its first alternative name that is a DNS name, else a URI, else an e-mail address.
pub(super) fn first_name(certificate: &[u8]) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let extension = parsed.subject_alternative_name().ok()??;
    let names = &extension.value.general_names;
    let dns = names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let uri = || {
        names.iter().find_map(|name| match name {
            GeneralName::URI(name) => Some(*name),
            _ => None,
        })
    };
    let email = || {
        names.iter().find_map(|name| match name {
            GeneralName::RFC822Name(name) => Some(*name),
            _ => None,
        })
    };
    dns.or_else(uri).or_else(email).map(str::to_owned)
}

/// How long a certificate still counts; nothing where it has expired.
pub(super) fn time_left(certificate: &[u8]) -> Option<Duration> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = parsed.validity().not_after.timestamp() - ASN1Time::now().timestamp();
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The moment in words, to the second.
pub(super) fn moment(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    ASN1Time::from_timestamp(seconds).map_or_else(|_| format!("second {seconds} of UNIX time"), date)
}

/// As RFC 3339 writes it.
fn date(time: ASN1Time) -> String {
    let at = time.to_datetime();
    let (hour, minute, second) = at.to_hms();
    let (year, month, day) = at.to_calendar_date();
    format!(
        "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z",
        u8::from(month)
    )
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => {
                Some(printable(name))
            }
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok().map(|address| address.to_string())
}

/// The first few names, and how many more there are.
pub(super) fn list(names: &[String]) -> String {
    let told = names.iter().take(NAMES_TOLD).map(|name| printable(name));
    let mut text = told.collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(NAMES_TOLD).filter(|more| *more > 0) {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {more} more");
    }
    text
}

/// A peer's text, without what could move a terminal's cursor, and not longer than anybody reads.
fn printable(text: &str) -> String {
    text.chars()
        .take(NAME_LENGTH)
        .map(|character| if character.is_control() { '?' } else { character })
        .collect()
}
