//! A connection's socket, with TLS around what goes through it or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsStream;

use crate::descriptors::Descriptors;
use crate::dial::{DialError, dial};
use crate::driver::{LINGER, LINGER_BYTES, linger};
use crate::socket::Socket;
use crate::tls::{ClientTls, ReadAhead, ServerTls, TlsFailure, refusal};

/// How connections are made.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// How long one attempt may take, name resolution and the handshake of TLS included.
    pub timeout: Duration,
    /// TLS, where the peer speaks it.
    pub tls: Option<Arc<ClientTls>>,
    /// Remembers the sockets.
    pub sockets: Arc<Descriptors>,
}

/// The socket of a connection, plain or with TLS.
#[derive(Debug)]
pub struct Link(Kind);

#[derive(Debug)]
enum Kind {
    Plain(Socket),
    Tls(Box<TlsLink>),
}

#[derive(Debug)]
struct TlsLink {
    stream: TlsStream<ReadAhead>,
    /// What has to be known until the server has said something inside TLS; nothing at the side that accepts.
    unproven: Option<Unproven>,
}

/// A server that may yet refuse the client's certificate.
#[derive(Debug)]
struct Unproven {
    /// The certificate in words.
    own: Option<Arc<str>>,
}

/// A client whose handshake is complete.
#[derive(Debug)]
pub struct Accepted {
    /// The way to it.
    pub link: Link,
    /// Who it is: the first alternative name of its certificate that is a DNS name, else a URI, else an e-mail address.
    /// `None` where it showed no certificate, or one without such a name.
    pub peer_name: Option<Arc<str>>,
}

impl Link {
    /// A connection without TLS.
    #[must_use]
    pub fn plain(socket: Socket) -> Self {
        Self(Kind::Plain(socket))
    }

    /// Connects to `address`, which is `host:port`.
    ///
    /// # Errors
    /// [`DialError`].
    pub async fn dial(address: &str, settings: &LinkSettings) -> Result<Self, DialError> {
        let deadline = Instant::now() + settings.timeout;
        let socket = Socket::new(dial(address, settings.timeout).await?, &settings.sockets);
        let Some(tls) = &settings.tls else {
            return Ok(Self::plain(socket));
        };
        let connected = timeout_at(deadline, tls.connect(address, socket)).await;
        let connected = connected.unwrap_or_else(|_| {
            Err(TlsFailure::passing(format!(
                "the handshake was not over within {:?}",
                settings.timeout
            )))
        });
        let connected = connected.map_err(|failure| DialError::Tls {
            address: address.to_owned(),
            failure,
        })?;
        Ok(Self(Kind::Tls(Box::new(TlsLink {
            stream: connected.stream.into(),
            unproven: Some(Unproven { own: connected.own }),
        }))))
    }

    /// Shakes hands with a client that has just connected, within `patience`. One that fails is given time to read why. It may
    /// send little before it is [let in](Self::let_in).
    ///
    /// # Errors
    /// Why the connection is over.
    pub async fn accept(socket: Socket, tls: &ServerTls, patience: Duration) -> Result<Accepted, TlsFailure> {
        match timeout(patience, tls.accept(socket)).await {
            Ok(Ok(accepted)) => Ok(Accepted {
                link: Self(Kind::Tls(Box::new(TlsLink {
                    stream: accepted.stream.into(),
                    unproven: None,
                }))),
                peer_name: accepted.peer_name,
            }),
            Ok(Err((failure, mut socket))) => {
                // One that takes no notice loses nothing but our patience.
                let _ = timeout(LINGER, linger(&mut socket, LINGER_BYTES)).await;
                Err(failure)
            }
            Err(_) => Err(TlsFailure::passing(format!(
                "the handshake was not over within {patience:?}"
            ))),
        }
    }

    /// Its peer is known, or is not asked who it is. Until then one that was [accepted](Self::accept) may send little.
    pub fn let_in(&mut self) {
        if let Kind::Tls(link) = &mut self.0 {
            link.stream.get_mut().0.let_in();
        }
    }

    /// Takes the connection over into the runtime that this is called in.
    ///
    /// # Errors
    /// What the system says; the socket is then closed.
    pub fn rehome(mut self) -> io::Result<Self> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.rehome_in_place()?,
            Kind::Tls(link) => link.stream.get_mut().0.rehome_in_place()?,
        }
        Ok(self)
    }
}

impl TlsLink {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        Poll::Ready(match read {
            Ok(()) => {
                if buffer.filled().len() > before {
                    self.unproven = None;
                }
                Ok(())
            }
            // Frames say where they end, so that a connection which is cut without TLS's own farewell is told from one that
            // ends in order by what it carries, as without TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(match &self.unproven {
                Some(unproven) => refusal(&error, unproven.own.as_deref()).map_or(error, io::Error::from),
                None => error,
            }),
        })
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Kind::Tls(link) => link.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Kind::Tls(link) => Pin::new(&mut link.stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Kind::Tls(link) => Pin::new(&mut link.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Kind::Tls(link) => Pin::new(&mut link.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Kind::Tls(link) => Pin::new(&mut link.stream).poll_shutdown(cx),
        }
    }
}
