//! The paths and their answers.

use axum::Router;
use axum::extract::{Query as Asked, Request, State};
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sbp_server::{Monitor, Permission, Query};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::guard::{bearer, is_meant_for_loopback, with_headers};
use crate::page::FILES;

/// The streams of `/status.json` when nobody says how many, and the most.
const STREAMS: usize = 100;
const MOST_STREAMS: usize = 1_000;
/// The longest text that is searched for: no name is longer.
const LONGEST_SEARCH: usize = 255;

const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the answers are made of.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) monitor: Monitor,
    /// Whether metrics have the figures of each stream.
    pub(crate) per_stream: bool,
    /// Whether only this machine can reach the listener.
    pub(crate) is_loopback: bool,
}

/// The part of `/status.json` that chooses streams.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    search: String,
    limit: Option<usize>,
    stream: Option<i64>,
}

pub(crate) fn routes(answers: Answers) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(async || "alive\n"))
        .route("/health/ready", get(ready))
        .route("/status.json", get(status));
    for file in FILES {
        let answer = async move || ([(CONTENT_TYPE, file.media_type)], file.text);
        router = router.route(file.path, get(answer));
    }
    router
        .layer(from_fn_with_state(answers.clone(), refuse_others))
        .layer(map_response(with_headers))
        .with_state(answers)
}

async fn refuse_others(State(answers): State<Answers>, request: Request, next: Next) -> Response {
    if answers.is_loopback && !is_meant_for_loopback(request.headers()) {
        let text = "this server is on loopback: ask it by 127.0.0.1 or localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    next.run(request).await
}

/// The answer to those who may not see the figures, where the server asks who somebody is; `None` to all others.
fn refusal(monitor: &Monitor, headers: &HeaderMap) -> Option<Response> {
    let refuse = |code: StatusCode, text: &'static str| (code, [(WWW_AUTHENTICATE, "Bearer")], text).into_response();
    match monitor.permission(bearer(headers)) {
        Permission::Granted => None,
        Permission::Unknown => Some(refuse(
            StatusCode::UNAUTHORIZED,
            "this server asks who somebody is: send Authorization: Bearer TOKEN\n",
        )),
        Permission::Forbidden => Some(refuse(
            StatusCode::FORBIDDEN,
            "the token is known, and its name needs read:* or admin:* to see the figures of the server\n",
        )),
    }
}

async fn metrics(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let Answers {
        monitor, per_stream, ..
    } = answers;
    if let Some(refused) = refusal(&monitor, &headers) {
        return refused;
    }
    let text = move || ([(CONTENT_TYPE, OPEN_METRICS)], monitor.metrics(per_stream));
    elsewhere(text).await
}

async fn ready(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let may_know_why = refusal(&answers.monitor, &headers).is_none();
    elsewhere(move || {
        let mut readiness = answers.monitor.readiness();
        if !may_know_why {
            readiness.problems.clear();
        }
        let code = if readiness.ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (code, json(&readiness))
    })
    .await
}

async fn status(State(answers): State<Answers>, headers: HeaderMap, Asked(choice): Asked<Choice>) -> Response {
    if let Some(refused) = refusal(&answers.monitor, &headers) {
        return refused;
    }
    if choice.search.len() > LONGEST_SEARCH {
        return (
            StatusCode::BAD_REQUEST,
            "no name is as long as the text to search for\n",
        )
            .into_response();
    }
    let query = Query {
        search: choice.search,
        limit: choice.limit.unwrap_or(STREAMS).min(MOST_STREAMS),
        stream: choice.stream,
        cursors: true,
    };
    elsewhere(move || json(&answers.monitor.status(&query))).await
}

/// Makes an answer on a thread that may wait for locks and the disk, one after the other.
async fn elsewhere<A: IntoResponse + Send + 'static>(make: impl FnOnce() -> A + Send + 'static) -> Response {
    match spawn_blocking(make).await {
        Ok(answer) => answer.into_response(),
        // The listener ends.
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
