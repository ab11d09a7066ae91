//! The paths and their answers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Query as Asked, Request, State};
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Frame;
use sbp_server::{Monitor, Permission, Problem, Query, Scrape, Sort};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::guard::{bearer, is_meant_for_loopback, with_headers};
use crate::page::FILES;

/// The streams of `/status.json` when nobody says how many, and the most.
const STREAMS: usize = 100;
const MOST_STREAMS: usize = 1_000;
/// The longest text that is searched for: no name is longer.
const LONGEST_SEARCH: usize = 255;

const METRICS: &str = "/metrics";
const STATUS: &str = "/status.json";

const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long it may take to find out what is wrong, before health is told without it.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// How long figures may wait for the disk, or for others that ask for them.
const FIGURES_TIME: Duration = Duration::from_secs(10);

/// Threads that make answers: one for each [`Lane`].
pub(crate) const THREADS: usize = 3;

/// What the answers are made of.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    monitor: Monitor,
    /// Whether metrics have the figures of each stream.
    per_stream: bool,
    /// The names that a listener is asked by which only this machine can reach; `None`: others can, by any name.
    hosts: Option<Arc<[String]>>,
    checks: Lane,
    scrapes: Lane,
    figures: Lane,
}

impl Answers {
    pub(crate) fn new(monitor: Monitor, per_stream: bool, hosts: Option<Arc<[String]>>) -> Self {
        Self {
            monitor,
            per_stream,
            hosts,
            checks: Lane::default(),
            scrapes: Lane::default(),
            figures: Lane::default(),
        }
    }
}

/// Work that may wait for locks and the disk, one piece after the other on a thread. Work of another lane does not wait
/// for it.
#[derive(Clone, Debug)]
struct Lane(Arc<Semaphore>);

impl Default for Lane {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Lane {
    /// Does this; `None`: the listener ends.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let working = spawn_blocking(move || {
            let done = work();
            // Not before: who asked may be gone while this goes on.
            drop(turn);
            done
        });
        working.await.ok()
    }
}

/// The part of `/status.json` that chooses streams.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    search: String,
    sort: Sort,
    limit: Option<usize>,
    stream: Option<i64>,
}

pub(crate) fn routes(answers: Answers) -> Router {
    let mut router = Router::new()
        .route(METRICS, get(metrics))
        .route("/health/live", get(async || "alive\n"))
        .route("/health/ready", get(health))
        .route(STATUS, get(status));
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
    if let Some(hosts) = &answers.hosts
        && !is_meant_for_loopback(request.headers(), hosts)
    {
        let text =
            "this server is on loopback: ask it by 127.0.0.1 or localhost, or by a name that --http-host gives\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    next.run(request).await
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(pub(crate) SocketAddr);

/// The answer to those who may not see the figures under this path, where the server asks who somebody is; `None` to all
/// others.
fn refusal(monitor: &Monitor, headers: &HeaderMap, Origin(from): Origin, path: &str) -> Option<Response> {
    let refuse = |code: StatusCode, text: &'static str| (code, [(WWW_AUTHENTICATE, "Bearer")], text).into_response();
    match monitor.permission_for(bearer(headers), from, path) {
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

async fn metrics(State(answers): State<Answers>, Extension(from): Extension<Origin>, headers: HeaderMap) -> Response {
    if let Some(refused) = refusal(&answers.monitor, &headers, from, METRICS) {
        return refused;
    }
    let pieces = Pieces {
        lane: answers.scrapes,
        scrape: Some(Scrape::new(answers.monitor, answers.per_stream)),
        making: None,
    };
    ([(CONTENT_TYPE, OPEN_METRICS)], Body::new(pieces)).into_response()
}

/// A scrape as the body of an answer. The next piece is made when the last one is on its way: who reads slowly keeps one
/// piece here, and no thread.
struct Pieces {
    lane: Lane,
    /// What is left, while no piece is being made.
    scrape: Option<Scrape>,
    making: Option<Making>,
}

/// A piece and what is left behind it; `None`: the listener ends.
type Making = Pin<Box<dyn Future<Output = Option<(Option<String>, Scrape)>> + Send>>;

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(mut scrape) = self.scrape.take() {
            let lane = self.lane.clone();
            self.making = Some(Box::pin(async move { lane.run(move || (scrape.next(), scrape)).await }));
        }
        let Some(making) = &mut self.making else {
            return Poll::Ready(None);
        };
        let made = ready!(making.as_mut().poll(context));
        self.making = None;
        Poll::Ready(match made {
            Some((Some(piece), scrape)) => {
                self.scrape = Some(scrape);
                Some(Ok(Frame::data(piece.into())))
            }
            Some((None, _)) => None,
            None => Some(Err(io::Error::other("the listener ends"))),
        })
    }
}

async fn health(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let mut readiness = answers.monitor.verdict();
    // Who may not see it all is told less, and not refused.
    if answers.monitor.permission(bearer(&headers)) == Permission::Granted {
        let monitor = answers.monitor.clone();
        match timeout(CHECK_TIME, answers.checks.run(move || monitor.readiness())).await {
            Ok(Some(found)) => readiness = found,
            Ok(None) => {}
            Err(_) => readiness.problems.push(Problem {
                kind: "busy",
                text: format!("what is wrong, if anything, could not be found out within {CHECK_TIME:?}"),
            }),
        }
    }
    let code = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, json(&readiness)).into_response()
}

async fn status(
    State(answers): State<Answers>,
    Extension(from): Extension<Origin>,
    headers: HeaderMap,
    Asked(choice): Asked<Choice>,
) -> Response {
    if let Some(refused) = refusal(&answers.monitor, &headers, from, STATUS) {
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
        sort: choice.sort,
        limit: choice.limit.unwrap_or(STREAMS).min(MOST_STREAMS),
        stream: choice.stream,
        cursors: true,
    };
    let making = answers.figures.run(move || json(&answers.monitor.status(&query)));
    match timeout(FIGURES_TIME, making).await {
        Ok(Some(made)) => made,
        // The listener ends.
        Ok(None) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(_) => {
            let text =
                "the figures could not be had in time, perhaps because the disk does not answer: ask /health/ready\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
