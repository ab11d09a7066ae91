//! What a browser must not be talked into: pages of others that read this server.

use std::net::IpAddr;

use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::Response;

/// Scripts, styles and data come from this server alone; nobody may frame it or have it send forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds what every answer says to browsers.
pub(crate) async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The token of a request; empty if it has none.
pub(crate) fn bearer(headers: &HeaderMap) -> &str {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => "",
    }
}

/// The longest name of a host, and the longest part of one between two dots (RFC 1035).
const LONGEST_NAME: usize = 253;
const LONGEST_PART: usize = 63;

/// A name by which a listener on loopback may be asked, as requests are compared with it.
///
/// # Errors
///
/// Why no request can come with it.
pub(crate) fn host_name(given: &str) -> Result<String, &'static str> {
    let name = without_dot(given);
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.contains("://") || name.contains('/') {
        return Err("it is an address with a scheme or a path");
    }
    if name.parse::<IpAddr>().is_ok() {
        return Ok(name.to_owned());
    }
    if name.contains([':', '[', ']']) {
        return Err("it has a port, and requests with any port are for it");
    }
    if name.contains('*') {
        return Err("patterns are not understood");
    }
    if !name.is_ascii() {
        return Err("browsers ask by such a name in its ASCII form, which begins with xn--");
    }
    let is_part = |part: &str| {
        let fits = (1..=LONGEST_PART).contains(&part.len());
        fits && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > LONGEST_NAME || !name.split('.').all(is_part) {
        return Err("names of hosts are letters, digits and hyphens, with dots between their parts");
    }
    Ok(name.to_owned())
}

/// A name may end with the dot of the root.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a request to a listener on loopback was meant for it: its host is an address, `localhost`, or one of the names
/// of a proxy in front of it. A page of somebody else whose name was made to lead to loopback (DNS rebinding) comes with
/// that name.
pub(crate) fn is_meant_for_loopback(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _port)) => inside,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let name = without_dot(name);
    let is_named = |known: &str| name.eq_ignore_ascii_case(known);
    is_named("localhost") || name.parse::<IpAddr>().is_ok() || names.iter().any(|known| is_named(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_meant_for_loopback() {
        let names = ["status.example.com".to_owned()];
        for (host, meant) in [
            ("127.0.0.1:8080", true),
            ("127.0.0.1", true),
            ("localhost:1", true),
            ("LOCALHOST", true),
            ("[::1]:8080", true),
            ("Status.example.com", true),
            ("status.example.com:443", true),
            ("localhost.:80", true),
            ("status.example.com.", true),
            ("other.status.example.com", false),
            (".", false),
            ("example.com", false),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            assert_eq!(is_meant_for_loopback(&headers, &names), meant, "{host:?}");
        }
        assert!(!is_meant_for_loopback(&HeaderMap::new(), &names));
    }

    #[test]
    fn names_that_no_request_can_have_are_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = "a.".repeat(200);
        for name in [
            "",
            ".",
            " ",
            "a b",
            "a\nb",
            "https://a",
            "a/b",
            "a:80",
            "[::1]",
            "*.example.com",
            "münchen.de",
            "a..b",
            ".a",
            &long,
            &longer,
        ] {
            assert!(host_name(name).is_err(), "{name:?}");
        }
        for (name, as_compared) in [
            ("status", "status"),
            ("Status.Example.com.", "Status.Example.com"),
            ("my_host-1.xn--mnchen-3ya.de", "my_host-1.xn--mnchen-3ya.de"),
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "::1"),
        ] {
            assert_eq!(host_name(name).as_deref(), Ok(as_compared));
        }
    }
}
