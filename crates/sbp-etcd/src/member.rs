//! One member of an etcd: its connection, which is made when it is needed, and calls over it.

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
use sbp_transport::{Link, LinkSettings};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::error::Failure;
use crate::message::Operation;

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 16 << 20;

/// A member. It has one connection at most, over which calls go side by side.
#[derive(Debug)]
pub(crate) struct Member {
    /// `host:port`.
    pub(crate) address: String,
    origin: Uri,
    settings: LinkSettings,
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

impl Member {
    /// `None` if the address cannot be one.
    pub(crate) fn new(address: &str, settings: LinkSettings) -> Option<Self> {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        Some(Self {
            address: address.to_owned(),
            origin: format!("{scheme}://{address}").parse().ok()?,
            settings,
            connection: Mutex::new(None),
        })
    }

    /// Asks, and waits for the answer `within` this time, a connection included.
    pub(crate) async fn call<Q: Operation + Clone>(&self, request: &Q, within: Duration) -> Result<Q::Answer, Failure> {
        let deadline = Instant::now() + within;
        let connection = match timeout_at(deadline, self.connection()).await {
            Ok(connection) => connection.map_err(Failure::Unreachable)?,
            Err(_) => return Err(Failure::Unreachable(format!("no connection within {within:?}"))),
        };
        let answer = timeout_at(deadline, connection.ask(&self.origin, request.clone())).await;
        let (failure, is_of_the_connection) = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => {
                let is_local = std::error::Error::source(&status).is_some();
                (failure_of(&status, is_local), is_local)
            }
            Err(_) => (Failure::NoAnswer(format!("within {within:?}")), true),
        };
        if is_of_the_connection {
            self.give_up(&connection).await;
        }
        Err(failure)
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
}

impl Connection {
    async fn ask<Q: Operation>(&self, origin: &Uri, request: Q) -> Result<Q::Answer, Status> {
        let service = Calls(self.sender.clone());
        let mut calls = Grpc::with_origin(service, origin.clone()).max_decoding_message_size(LONGEST_ANSWER);
        calls.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = tonic::Request::new(request);
        // A member that knows no leader says so instead of waiting for one.
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static(Q::PATH);
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

/// What a status means for what was asked. `is_local`: it was made on this side.
fn failure_of(status: &Status, is_local: bool) -> Failure {
    let message = status.message().to_owned();
    if is_local {
        return Failure::NoAnswer(message);
    }
    match status.code() {
        // Of etcd it says that a revision is compacted; of the library, that there are too many bytes.
        Code::OutOfRange if message.contains("message length") => Failure::TooLarge(message),
        Code::NotFound => Failure::Absent(message),
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::Unimplemented => Failure::Refused(message),
        // "Request timed out" and "leader changed" among them.
        code => Failure::NoAnswer(format!("{code:?}: {message}")),
    }
}
