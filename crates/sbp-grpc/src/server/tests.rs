use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;
use sbp_transport::{Descriptors, LinkSettings};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::{CallError, Channel, path};

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, Eq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// Says everything twice; counts calls that are under way.
#[derive(Default)]
struct Echo {
    waiting: AtomicUsize,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Echo {
    async fn call(self: Arc<Self>, path: &str, request: Bytes) -> Result<Bytes, Status> {
        match path {
            "/test.Echo/say" => {
                let text = Text::decode(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
                let text = text.text.repeat(2);
                Ok(Text { text }.encode_to_vec().into())
            }
            "/test.Echo/wait" => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _waiting = Waiting(&self.waiting);
                std::future::pending().await
            }
            other => Err(Status::unimplemented(format!("{other} is not served"))),
        }
    }
}

struct Served {
    echo: Arc<Echo>,
    address: String,
    task: JoinHandle<Result<(), String>>,
}

/// Serves one connection.
async fn served(limits: ServiceLimits) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let echo = Arc::new(Echo::default());
    let service = Arc::clone(&echo);
    let task = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("a connection");
        serve(socket, service, &limits).await
    });
    Served { echo, address, task }
}

fn channel(address: &str) -> Channel {
    let settings = LinkSettings {
        timeout: PATIENCE,
        tls: None,
        sockets: Descriptors::new(4),
    };
    Channel::new(address, settings, None).expect("an address")
}

async fn say(channel: &Channel, text: &str) -> Result<String, CallError> {
    let text = text.to_owned();
    let answer: Text = channel.call(path("/test.Echo/say"), Text { text }, PATIENCE).await?;
    Ok(answer.text)
}

fn code(answer: Result<String, CallError>) -> Code {
    match answer {
        Err(CallError::Status { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn calls_are_answered_side_by_side() {
    let served = served(ServiceLimits::default()).await;
    let channel = Arc::new(channel(&served.address));
    assert_eq!(say(&channel, "ab").await, Ok(String::from("abab")));
    let mut calls = JoinSet::new();
    for number in 0..100 {
        let channel = Arc::clone(&channel);
        calls.spawn(async move { say(&channel, &number.to_string()).await == Ok(format!("{number}{number}")) });
    }
    assert!(calls.join_all().await.into_iter().all(|is_right| is_right));
    channel.disconnect().await;
    let ended = timeout(PATIENCE, served.task).await.expect("in time");
    assert_eq!(ended.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn what_is_not_served_or_too_long_or_late_is_refused_and_the_connection_goes_on() {
    let limits = ServiceLimits {
        request: 1_000,
        call_within: Duration::from_millis(200),
        ..ServiceLimits::default()
    };
    let served = served(limits).await;
    let channel = channel(&served.address);
    let unknown: Result<Text, _> = channel.call(path("/test.Echo/other"), Text::default(), PATIENCE).await;
    assert_eq!(code(unknown.map(|text| text.text)), Code::Unimplemented);
    assert_eq!(code(say(&channel, &"x".repeat(1_000)).await), Code::OutOfRange);
    let late: Result<Text, _> = channel.call(path("/test.Echo/wait"), Text::default(), PATIENCE).await;
    assert_eq!(code(late.map(|text| text.text)), Code::DeadlineExceeded);
    assert_eq!(served.echo.waiting.load(Ordering::SeqCst), 0, "it was given up");
    assert_eq!(say(&channel, "still there").await.map(|text| text.len()), Ok(22));
}

#[tokio::test]
async fn what_does_not_begin_or_is_no_http_ends() {
    let limits = ServiceLimits {
        silence: Duration::from_millis(100),
        ..ServiceLimits::default()
    };
    for bytes in [
        b"".as_slice(),
        b"PRI * HT",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let served = served(limits.clone()).await;
        let mut socket = TcpStream::connect(&served.address).await.expect("a connection");
        socket.write_all(bytes).await.expect("written");
        let ended = timeout(PATIENCE, served.task).await.expect("in time");
        assert!(ended.expect("no panic").is_err(), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_peer_that_is_silent_is_not_waited_for() {
    let limits = ServiceLimits {
        silence: Duration::from_millis(100),
        ..ServiceLimits::default()
    };
    let served = served(limits).await;
    let mut socket = TcpStream::connect(&served.address).await.expect("a connection");
    // The preface, and settings without any.
    let begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    socket.write_all(begins).await.expect("written");
    let ended = timeout(PATIENCE, served.task).await.expect("in time");
    assert!(ended.expect("no panic").is_err(), "it does not answer pings");
}

#[tokio::test]
async fn calls_end_with_their_connection() {
    for is_dropped in [false, true] {
        let served = served(ServiceLimits::default()).await;
        let channel = Arc::new(channel(&served.address));
        let asking = {
            let channel = Arc::clone(&channel);
            tokio::spawn(async move {
                let waited: Result<Text, _> = channel.call(path("/test.Echo/wait"), Text::default(), PATIENCE).await;
                waited.map(|text| text.text)
            })
        };
        let count = || served.echo.waiting.load(Ordering::SeqCst);
        timeout(PATIENCE, until(|| count() == 1)).await.expect("it is called");
        match is_dropped {
            true => served.task.abort(),
            false => asking.abort(),
        }
        timeout(PATIENCE, until(|| count() == 0)).await.expect("it ends");
    }
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
