//! Whoever answers.

use std::convert::Infallible;
use std::future::Future;
use std::io::Cursor;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

/// What every connection of HTTP/2 begins with.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The most bytes of the headers of a request.
const HEADERS: u32 = 16 << 10;

/// A service.
pub trait Service: Send + Sync + 'static {
    /// Answers a call at a path such as `/package.Service/method`: a message, as bytes, with another one.
    ///
    /// # Errors
    /// The status that the call ends with.
    fn call(self: Arc<Self>, path: &str, request: Bytes) -> impl Future<Output = Result<Bytes, Status>> + Send;
}

/// What one connection may do.
#[derive(Clone, Debug)]
pub struct ServiceLimits {
    /// Calls at once; more wait on the other side.
    pub calls: u32,
    /// The most bytes of a request.
    pub request: usize,
    /// How long a call may take, from its first byte to its answer.
    pub call_within: Duration,
    /// After so much silence the peer is asked whether it is there, and has as long to say so. A connection that does not begin
    /// within this time ends as well.
    pub silence: Duration,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self {
            calls: 16,
            request: 256 << 10,
            call_within: Duration::from_secs(60),
            silence: Duration::from_secs(20),
        }
    }
}

/// Answers what is asked over one connection, until that is over. Calls under way are given up then, and with this future.
///
/// # Errors
/// What ended the connection, other than the peer's leave.
pub async fn serve<I, S>(io: I, service: Arc<S>, limits: &ServiceLimits) -> Result<(), String>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service,
{
    let (mut read, write) = tokio::io::split(io);
    let mut preface = [0; PREFACE];
    match timeout(limits.silence, read.read_exact(&mut preface)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(String::from("it does not begin")),
    }
    let io = tokio::io::join(Cursor::new(preface).chain(read), write);
    let (spawned, mut arriving) = unbounded_channel();
    let answering = {
        let limits = limits.clone();
        service_fn(move |request| answer(Arc::clone(&service), request, limits.clone()))
    };
    let connection = http2::Builder::new(Tasks(spawned))
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.silence)
        .keep_alive_timeout(limits.silence)
        .max_concurrent_streams(limits.calls)
        .max_header_list_size(HEADERS)
        .serve_connection(TokioIo::new(io), answering);
    let mut connection = pin!(connection);
    let mut calls = JoinSet::new();
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            Some(call) = arriving.recv() => { calls.spawn(call); }
            Some(ended) = calls.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    return Err(format!("a call has failed: {error}"));
                }
            }
        }
    };
    calls.shutdown().await;
    ended.map_err(|error| error.to_string())
}

/// What hyper wants to be run beside a connection. It runs as part of it.
#[derive(Clone)]
struct Tasks(UnboundedSender<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        // Where nobody listens, the connection is over.
        drop(self.0.send(Box::pin(async move {
            task.await;
        })));
    }
}

async fn answer<S: Service>(
    service: Arc<S>,
    request: Request<Incoming>,
    limits: ServiceLimits,
) -> Result<Response<Body>, Infallible> {
    let call = Call {
        service,
        path: request.uri().path().to_owned(),
    };
    let mut calls = Grpc::new(Raw).max_decoding_message_size(limits.request);
    let answered = timeout(limits.call_within, calls.unary(call, request)).await;
    Ok(answered.unwrap_or_else(|_| {
        let late = format!("there is no answer within {:?}", limits.call_within);
        Status::new(Code::DeadlineExceeded, late).into_http()
    }))
}

/// One call.
struct Call<S> {
    service: Arc<S>,
    path: String,
}

impl<S: Service> UnaryService<Bytes> for Call<S> {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let service = Arc::clone(&self.service);
        let path = std::mem::take(&mut self.path);
        Box::pin(async move {
            let answer = service.call(&path, request.into_inner()).await?;
            Ok(tonic::Response::new(answer))
        })
    }
}

/// Messages as the bytes that they are: which they are is known by the path alone.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = bytes::Buf::remaining(buffer);
        Ok(Some(bytes::Buf::copy_to_bytes(buffer, length)))
    }
}

#[cfg(test)]
mod tests;
