//! A peer that sends whatever bytes it likes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use sbp_e2e::wait::bounded;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const GREETING: [u8; 5] = [3, 0, 0, 0, 0];

pub(crate) fn frame(message: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[message][..], &length, payload].concat()
}

/// A length of one byte, and a text.
pub(crate) fn name(name: &str) -> Vec<u8> {
    [&[u8::try_from(name.len()).unwrap()][..], name.as_bytes()].concat()
}

/// A connection that the broker has greeted.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) async fn connect(broker: SocketAddr) -> Self {
        Self::try_connect(broker).await.expect("a greeting")
    }

    /// `None`: it was closed without a greeting.
    pub(crate) async fn try_connect(broker: SocketAddr) -> Option<Self> {
        let mut raw = Self(bounded(TcpStream::connect(broker)).await.unwrap());
        let mut greeting = [0; GREETING.len()];
        match bounded(raw.0.read_exact(&mut greeting)).await {
            Ok(_) => {
                assert_eq!(greeting, GREETING);
                Some(raw)
            }
            Err(error) => {
                let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                assert!(ends.contains(&error.kind()), "{error}");
                None
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        bounded(self.0.write_all(bytes)).await.unwrap();
    }

    /// The next frame that is no Ping.
    pub(crate) async fn answer(&mut self) -> (u8, Vec<u8>) {
        loop {
            let mut head = [0; 5];
            bounded(self.0.read_exact(&mut head)).await.unwrap();
            let [message, length @ ..] = head;
            let mut payload = vec![0; usize::try_from(u32::from_le_bytes(length)).unwrap()];
            bounded(self.0.read_exact(&mut payload)).await.unwrap();
            if message != GREETING[0] {
                return (message, payload);
            }
        }
    }

    /// Asks how the broker is: it answers.
    pub(crate) async fn is_served(&mut self) {
        self.send(&frame(10, &7_u32.to_le_bytes())).await;
        let (message, payload) = self.answer().await;
        assert_eq!((message, &payload[..4]), (10, &[7, 0, 0, 0][..]));
    }

    /// Nothing more comes until the broker closes the connection.
    pub(crate) async fn is_closed(&mut self, what: &str) {
        bounded(ends(&mut self.0, what)).await;
    }

    /// Sends one byte after the other, and the broker closes the connection amid that.
    pub(crate) async fn is_closed_amid(&mut self, bytes: &[u8], pause: Duration, what: &str) {
        let (mut reader, mut writer) = self.0.split();
        let send = async {
            for byte in bytes.chunks(1) {
                if writer.write_all(byte).await.is_err() {
                    return false;
                }
                sleep(pause).await;
            }
            true
        };
        let until_closed = async {
            tokio::select! {
                biased;
                () = ends(&mut reader, what) => {}
                all = send => assert!(!all, "{what}: the broker took all of it"),
            }
        };
        bounded(until_closed).await;
    }
}

/// Nothing more can be read.
async fn ends(mut reader: impl AsyncRead + Unpin, what: &str) {
    let mut rest = Vec::new();
    if let Err(error) = reader.read_to_end(&mut rest).await {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}");
    }
    assert_eq!(rest, Vec::<u8>::new(), "{what}");
}
