//! Whoever asks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use sbp_transport::{Link, LinkSettings};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::MetadataValue;
use tonic_prost::ProstCodec;

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 16 << 20;

/// Why a call has brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// Nothing was sent: there is no connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// No answer came; the call may have been carried out.
    #[error("no answer came: {0}")]
    NoAnswer(String),
    /// The service has answered that it does not do this.
    #[error("{code:?}: {message}")]
    Status {
        /// The code of its status.
        code: Code,
        /// What it says.
        message: String,
    },
}

/// The way to a service.
#[derive(Debug)]
pub struct Channel {
    /// `host:port`.
    address: String,
    origin: Uri,
    settings: LinkSettings,
    /// What is sent with each request.
    metadata: Option<(&'static str, &'static str)>,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// A connection, and the task that moves its bytes. The last user ends both.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Channel {
    /// The way to a service at `address`, with what is sent with each request beside it; `None` if the address cannot be one.
    #[must_use]
    pub fn new(address: &str, settings: LinkSettings, metadata: Option<(&'static str, &'static str)>) -> Option<Self> {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        Some(Self {
            address: address.to_owned(),
            origin: format!("{scheme}://{address}").parse().ok()?,
            settings,
            metadata,
            connection: Mutex::new(None),
        })
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks at a path such as `/package.Service/method`, and waits for the answer `within` this time, a connection included.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<Q, A>(&self, path: PathAndQuery, request: Q, within: Duration) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + within;
        let connection = match timeout_at(deadline, self.connection()).await {
            Ok(connection) => connection.map_err(CallError::Unreachable)?,
            Err(_) => return Err(CallError::Unreachable(format!("no connection within {within:?}"))),
        };
        let answer = timeout_at(deadline, self.ask(&connection, path, request)).await;
        let (error, is_of_the_connection) = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => {
                let message = status.message().to_owned();
                // It was made on this side.
                match std::error::Error::source(&status) {
                    Some(_) => (CallError::NoAnswer(message), true),
                    None => {
                        let code = status.code();
                        (CallError::Status { code, message }, false)
                    }
                }
            }
            Err(_) => (CallError::NoAnswer(format!("within {within:?}")), true),
        };
        if is_of_the_connection {
            self.give_up(&connection).await;
        }
        Err(error)
    }

    /// Ends the connection, if there is one; the next call makes another one.
    pub async fn disconnect(&self) {
        *self.connection.lock().await = None;
    }

    /// The connection that stands, or a new one.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut standing = self.connection.lock().await;
        if let Some(connection) = &*standing
            && !connection.sender.is_closed()
        {
            return Ok(Arc::clone(connection));
        }
        let link = Link::dial(&self.address, &self.settings)
            .await
            .map_err(|error| error.to_string())?;
        let (sender, moving) = handshake(TokioExecutor::new(), TokioIo::new(link))
            .await
            .map_err(|error| error.to_string())?;
        let task = tokio::spawn(async move {
            // Whoever waits for an answer over it is told.
            let _ended = moving.await;
        });
        let connection = Arc::new(Connection { sender, task });
        *standing = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Dials again for the next call: a connection on which an answer did not come may lead nowhere.
    async fn give_up(&self, connection: &Arc<Connection>) {
        let mut standing = self.connection.lock().await;
        if standing
            .as_ref()
            .is_some_and(|standing| Arc::ptr_eq(standing, connection))
        {
            *standing = None;
        }
    }

    async fn ask<Q, A>(&self, connection: &Connection, path: PathAndQuery, request: Q) -> Result<A, tonic::Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let service = Calls(connection.sender.clone());
        let mut calls = Grpc::with_origin(service, self.origin.clone()).max_decoding_message_size(LONGEST_ANSWER);
        calls
            .ready()
            .await
            .map_err(|error| tonic::Status::from_error(error.into()))?;
        let mut request = tonic::Request::new(request);
        if let Some((name, value)) = self.metadata {
            request.metadata_mut().insert(name, MetadataValue::from_static(value));
        }
        let answer = calls.unary(request, path, ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }
}

/// Requests over one connection, as tonic sends them.
struct Calls(SendRequest<Body>);

impl GrpcService<Body> for Calls {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A path that is known when this is built.
#[must_use]
pub fn path(text: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(text)
}
