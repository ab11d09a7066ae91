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
            ("other.status.example.com", false),
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
}
