//! Asking a server for its figures, as the command line does.

use std::time::Duration;

use axum::http::StatusCode;
use sbp_server::{HttpAsker, HttpUrl};
use sbp_transport::ClientTlsFiles;

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
    let url = format!("{scheme}://{}/status.json", rest.trim_end_matches('/'));
    let answer = ask(&url, tls, token, within).await;
    answer.map_err(|reason| AskError { url, reason })
}

async fn ask(url: &str, tls: ClientTlsFiles, token: &str, within: Duration) -> Result<String, String> {
    let url = HttpUrl::parse(url)?;
    let answer = HttpAsker::new(&url, tls, within, LONGEST)?.get(&url, token).await?;
    let status = answer.status;
    let is_refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    match status.is_success() {
        true => String::from_utf8(answer.body.into()).map_err(|error| error.to_string()),
        false if is_refused => Err(format!("{status}: give a token of a name that may read:* or admin:*")),
        false => Err(format!("the answer is {status}")),
    }
}
