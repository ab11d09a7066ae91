//! What one sees of a server over HTTP: metrics, health, figures, and a page for people.
//!
//! | path | what it is |
//! | --- | --- |
//! | `/` | the status page |
//! | `/status.json` | everything that the page shows; `search`, `sort`, `limit` and `stream` choose the streams |
//! | `/metrics` | the figures for Prometheus, in the text format of OpenMetrics |
//! | `/health/live` | 200 while the process answers |
//! | `/health/ready` | 200 if the server can be sent work, else 503: while it recovers, drains, or has failed |
//!
//! [`ObservedServer`] is a server together with its HTTP listener, which begins to answer before the server recovers and
//! ends after it. The listener has a thread of its own, and everything that a client of it can use is bounded, so that
//! whoever asks slowly or often does not hurt the server.

mod activity;
mod ask;
mod guard;
mod listener;
mod observed;
mod page;
mod routes;

pub use ask::{AskError, ask_status};
pub use listener::{HttpConfig, HttpServer};
pub use observed::ObservedServer;
