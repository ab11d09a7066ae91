//! Asking a server for its figures, as the command line does.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{Request, StatusCode};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use sbp_transport::{ClientTls, ClientTlsFiles, Descriptors, Link, LinkSettings};
use tokio::time::timeout;

use crate::listener::PROTOCOL;

/// The longest answer that is read.
const LONGEST: usize = 16 << 20;

/// Why a server did not tell its figures.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}; give the address of --http, and start the server with it")]
pub struct AskError {
    url: String,
    reason: String,
}

/// The text of `/status.json` of the server that answers HTTP at `host:port`, or at `https://host:port` if it is with
/// TLS; then `tls` says whom to trust.
///
/// # Errors
///
/// Nobody answers there in time, or not as a server of ours does.
/// A server that asks who somebody is wants a `token`; empty: none.
pub async fn ask_status(address: &str, tls: ClientTlsFiles, token: &str, within: Duration) -> Result<String, AskError> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let address = rest.trim_end_matches('/');
    let failed = |reason: String| AskError {
        url: format!("{scheme}://{address}/status.json"),
        reason,
    };
    let tls = match scheme {
        "http" => None,
        "https" => Some(ClientTls::speaking(PROTOCOL, tls).map_err(|error| failed(error.to_string()))?),
        _ => return Err(failed("this is asked over http:// or https://".to_owned())),
    };
    let settings = LinkSettings {
        timeout: within,
        tls,
        sockets: Descriptors::new(1),
    };
    match timeout(within, answer(address, &settings, token)).await {
        Ok(answer) => answer.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer in {within:?}"))),
    }
}

async fn answer(
    address: &str,
    settings: &LinkSettings,
    token: &str,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let link = Link::dial(address, settings).await?;
    let (mut sender, connection) = handshake(TokioIo::new(link)).await?;
    let mut request = Request::get("/status.json").header(HOST, address);
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty())?;
    let asked = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let is_refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
        let body = axum::body::to_bytes(Body::new(response.into_body()), LONGEST).await?;
        match status.is_success() {
            true => Ok(String::from_utf8(body.into())?),
            false if is_refused => Err(format!("{status}: give a token of a name that may read:* or admin:*").into()),
            false => Err(format!("the answer is {status}").into()),
        }
    };
    // The connection moves the bytes while the answer is waited for.
    let (answer, _ended) = tokio::join!(asked, connection);
    answer
}
