//! Access in a cluster: servers that ask each other who they are, and grants on names at a range server, which learns the
//! names from its placement driver.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sbp_client::{AppendOptions, Client, ClientError, ReaderOptions};
use sbp_e2e::access::{Names, client_as, hello};
use sbp_e2e::clients::{client_with, stream_ids, whole};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::{bounded, until};
use sbp_messages::{ClientRole, ErrorCode, FetchResponse, Message, Stream, Token};
use sbp_server::access::Moment;
use sbp_server::{AccessConfig, Roles, Server, ServerConfig, StartError};
use sbp_types::StreamId;
use tempfile::TempDir;

/// A placement driver and a range server, each of which asks who others are.
struct Two {
    directory: TempDir,
    names: Names,
    root: Token,
}

impl Two {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names = Names::default();
        let root = names.add("root", &["admin:*", "read:*", "write:*"]);
        Self { directory, names, root }
    }

    /// The file with the token that the servers show each other.
    fn token_file(&self) -> PathBuf {
        self.directory.path().join("peer.token")
    }

    fn show(&self, token: &Token) {
        fs::write(self.token_file(), format!("{}\n", token.secret())).unwrap();
    }

    fn config(&self, name: &str, listen: &str) -> ServerConfig {
        let mut config = quick_config(Some(&self.directory.path().join(name)), listen);
        config.access = Some(AccessConfig {
            file: self.names.path(),
            jwt: None,
        });
        config.peer_token = Some(self.token_file());
        config.report_interval = Duration::from_millis(100);
        config.default_timeout = Duration::from_secs(2);
        config
    }

    fn placement_driver(&self, listen: &str) -> Server {
        let mut config = self.config("pd", listen);
        config.roles = Roles::PlacementDriver;
        Server::start(config).unwrap()
    }

    fn try_range_server(&self, driver: &str) -> Result<Server, StartError> {
        self.try_range_server_with("rs", driver, |_| ())
    }

    /// A range server in this directory, changed.
    fn try_range_server_with(
        &self,
        name: &str,
        driver: &str,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Result<Server, StartError> {
        let mut config = self.config(name, "127.0.0.1:0");
        config.roles = Roles::RangeServer {
            placement_driver: vec![driver.to_owned()],
        };
        change(&mut config);
        Server::start(config)
    }

    fn start(&self) -> (Server, Server) {
        self.show(&self.names.add("servers", &["server"]));
        let driver = self.placement_driver("127.0.0.1:0");
        let ranges = self.range_server(&driver);
        (driver, ranges)
    }

    /// A range server that its placement driver knows of.
    fn range_server(&self, driver: &Server) -> Server {
        self.try_range_server(driver.address()).unwrap()
    }
}

async fn append(client: &Client, stream: StreamId) -> Result<(), ClientError> {
    let options = AppendOptions::default();
    bounded(client.append(stream, b"record".as_slice(), &options))
        .await
        .map(drop)
}

async fn read(client: &Client, stream: StreamId) -> Result<usize, ClientError> {
    let mut reader = client.reader(vec![whole(stream)], ReaderOptions::default());
    let mut batches = 0;
    while let Some(batch) = bounded(reader.next()).await {
        batch?;
        batches += 1;
    }
    Ok(batches)
}

async fn rename(root: &Client, stream: StreamId, name: &str) {
    let renamed = Stream {
        stream_id: stream,
        name: name.to_owned(),
        ..Stream::default()
    };
    let done = root.update_streams(vec![renamed], None).await.unwrap();
    done.into_iter().next().unwrap().unwrap();
}

/// Makes streams as soon as there is a range server for them.
async fn make(root: &Client, names: &[&str]) -> Vec<StreamId> {
    bounded(stream_ids(root, names)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_show_each_other_tokens() {
    let two = Two::new();
    two.show(&two.names.add("nobody", &["read:*"]));
    let driver = two.placement_driver("127.0.0.1:0");
    let refused = two.try_range_server(driver.address()).unwrap_err().to_string();
    assert!(refused.contains("nobody may not act as a server"), "{refused}");
    two.show(&Token::new("sbp_unheard_of"));
    let refused = two.try_range_server(driver.address()).unwrap_err().to_string();
    assert!(refused.contains("does not know the token"), "{refused}");
    fs::remove_file(two.token_file()).unwrap();
    let refused = two.try_range_server(driver.address()).unwrap_err().to_string();
    assert!(refused.contains("sent no token"), "{refused}");

    // This one expires soon; what replaces it is read when the other side asks.
    let soon = Moment::from(std::time::SystemTime::now()).after(Duration::from_secs(13));
    let first = two
        .names
        .add_with("servers", &["server"], |entry| entry.expires = Some(soon));
    two.show(&first);
    tokio::task::block_in_place(|| {
        until("the first token", || {
            let status = hello(&mut Peer::connect(&driver), &first, ClientRole::CLIENT).status;
            status.is_success().then_some(())
        });
    });
    let ranges = two.range_server(&driver);
    two.show(&two.names.add("servers", &["server"]));
    let root = client_as(&driver, &two.root);
    let stream = make(&root, &["s"]).await[0];
    append(&root, stream).await.unwrap();
    tokio::task::block_in_place(|| {
        until("the end of the first token", || {
            std::thread::sleep(Duration::from_millis(200));
            let mut peer = Peer::connect(&driver);
            (!hello(&mut peer, &first, ClientRole::CLIENT).status.is_success()).then_some(())
        })
    });
    let more = make(&root, &["t"]).await[0];
    append(&root, more).await.unwrap();
    assert_eq!(ranges.stats().streams, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_on_names_count_at_a_range_server() {
    let two = Two::new();
    let billing = two.names.add("billing", &["read:orders/*", "write:orders/eu"]);
    let (driver, ranges) = two.start();
    let root = client_as(&driver, &two.root);
    let ids = make(&root, &["orders/eu", "orders/us", "secret"]).await;
    let [eu, us, secret] = ids[..] else {
        panic!("three streams")
    };
    for stream in [us, secret] {
        append(&root, stream).await.unwrap();
    }
    let billing = client_as(&driver, &billing);
    append(&billing, eu).await.unwrap();
    assert_eq!(read(&billing, eu).await.unwrap(), 1);
    assert_eq!(read(&billing, us).await.unwrap(), 1);
    let denied = append(&billing, us).await.unwrap_err();
    assert_eq!(denied.code(), ErrorCode::FORBIDDEN, "{denied}");

    // A name that changes changes who may, before whoever renamed it is told.
    rename(&root, us, "archive/us").await;
    assert_eq!(read(&billing, us).await.unwrap_err().code(), ErrorCode::FORBIDDEN);
    rename(&root, secret, "orders/open").await;
    assert_eq!(read(&billing, secret).await.unwrap(), 1);
    // A name that is free again is that of another stream.
    let deleted = root.delete_streams(&[eu], None).await.unwrap();
    deleted.into_iter().next().unwrap().unwrap();
    let again = make(&root, &["orders/eu"]).await[0];
    append(&billing, again).await.unwrap();
    assert_eq!(read(&billing, again).await.unwrap(), 1);
    drop(ranges);
}

/// Somebody who may read `old/*` waits for a record of a stream that is renamed: there is none for him.
async fn renamed_while_a_fetch_waits(ranges: &Server, root: &Client, reader: &Token) {
    let stream = make(root, &["old/s"]).await[0];
    let (mut peer, call) = tokio::task::block_in_place(|| {
        let mut peer = Peer::connect(ranges);
        assert!(hello(&mut peer, reader, ClientRole::CLIENT).status.is_success());
        let call = peer.send(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
        // Requests are handled in their order: now the FETCH waits.
        assert!(hello(&mut peer, reader, ClientRole::CLIENT).status.is_success());
        (peer, call)
    });
    rename(root, stream, "secret/s").await;
    append(root, stream).await.unwrap();
    let frame = tokio::task::block_in_place(|| peer.answer(call));
    let answer = FetchResponse::decode(&frame.header).unwrap();
    let result = &answer.fetch_responses[0];
    assert_eq!(result.status.code, ErrorCode::FORBIDDEN, "{result:?}");
    assert_eq!((frame.payload.len(), result.high_watermark), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_waits_has_the_rights_of_the_streams_present_name() {
    let two = Two::new();
    let reader = two.names.add("reader", &["read:old/*"]);
    let (driver, ranges) = two.start();
    renamed_while_a_fetch_waits(&ranges, &client_as(&driver, &two.root), &reader).await;
    let both = two.names.serve();
    renamed_while_a_fetch_waits(&both, &client_as(&both, &two.root), &reader).await;
}

/// What a range server says of a stream to somebody.
fn told(server: &Server, token: &Token, stream: StreamId) -> (ErrorCode, String) {
    let mut peer = Peer::connect(server);
    assert!(hello(&mut peer, token, ClientRole::CLIENT).status.is_success());
    let (answer, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    let status = &answer.fetch_responses[0].status;
    (
        status.code,
        status.message.replace(&format!("stream {stream}"), "stream N"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_placement_driver_a_range_server_serves_names_that_it_knows() {
    let two = Two::new();
    let billing = two.names.add("billing", &["read:orders/*", "write:orders/*"]);
    let (driver, ranges) = two.start();
    let address = driver.address().to_owned();
    let root = client_as(&driver, &two.root);
    let ids = make(&root, &["orders/eu", "secret"]).await;
    let [eu, secret] = ids[..] else { panic!("two streams") };
    let missing = StreamId(99);
    let ask = |stream| tokio::task::block_in_place(|| told(&ranges, &billing, stream));
    assert_eq!(ask(eu).0, ErrorCode::NONE);
    let forbidden = ask(secret);
    assert_eq!(forbidden.0, ErrorCode::FORBIDDEN);
    let nothing = tokio::task::block_in_place(|| {
        until("an answer about a stream that nobody knows", || {
            Some(ask(missing)).filter(|(code, _)| *code != ErrorCode::RANGE_NOT_FOUND)
        })
    });
    assert_eq!(nothing, forbidden, "alike");

    bounded(root.close()).await;
    tokio::task::spawn_blocking(move || driver.shutdown().unwrap())
        .await
        .unwrap();
    let unsure = tokio::task::block_in_place(|| {
        until("the loss of the placement driver", || {
            Some(ask(secret)).filter(|(code, _)| *code != ErrorCode::FORBIDDEN)
        })
    });
    assert_eq!(unsure.0, ErrorCode::RANGE_NOT_FOUND, "to be asked again");
    assert!(unsure.1.contains("lost the placement driver"), "{}", unsure.1);
    assert_eq!(ask(missing), unsure, "alike");
    assert_eq!(ask(eu).0, ErrorCode::NONE, "what it knows it goes on with");

    // The stream is made while the range server cannot hear of it: it learns of it with the placement driver's return.
    let driver = tokio::task::block_in_place(|| two.placement_driver(&address));
    tokio::task::block_in_place(|| {
        until("the placement driver's return", || {
            Some(ask(secret)).filter(|told| *told == forbidden)
        })
    });
    let client = client_with(driver.address(), |config| {
        config.token = Some(sbp_client::TokenSource::Fixed(billing.clone()));
    });
    append(&client, eu).await.unwrap();
}

/// A range server says of a stream that is elsewhere what it says of it to those who may do everything, to those who may read
/// it; to others it says what it says of a stream that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_stream_that_is_elsewhere_a_range_server_asks_before_it_judges() {
    let two = Two::new();
    let billing = two.names.add("billing", &["read:orders/*", "write:orders/*"]);
    let (driver, first) = two.start();
    let root = client_as(&driver, &two.root);
    let ids = make(&root, &["orders/eu", "secret"]).await;
    let [eu, secret] = ids[..] else { panic!("two streams") };
    let elsewhere = two.try_range_server_with("other", driver.address(), |_| ()).unwrap();
    tokio::task::block_in_place(|| {
        let ask = |stream| told(&elsewhere, &billing, stream);
        // It has been told which streams are its own, and these are not.
        until("the other range server", || {
            Some(ask(eu)).filter(|(_, text)| !text.contains("has lost the placement driver"))
        });
        let missing = StreamId(99);
        for _ in 0..3 {
            let (code, text) = until("an answer about the stream that it may read", || {
                Some(ask(eu)).filter(|(_, text)| !text.contains("is being asked"))
            });
            assert_eq!(code, ErrorCode::RANGE_NOT_FOUND, "never final: {text}");
            assert!(text.contains("no range of stream N is here"), "{text}");
            let forbidden = until("an answer about the stream that it may not read", || {
                Some(ask(secret)).filter(|(code, _)| *code != ErrorCode::RANGE_NOT_FOUND)
            });
            assert_eq!(forbidden.0, ErrorCode::FORBIDDEN, "{}", forbidden.1);
            let nothing = until("an answer about no stream", || {
                Some(ask(missing)).filter(|(code, _)| *code != ErrorCode::RANGE_NOT_FOUND)
            });
            assert_eq!(nothing, forbidden, "alike");
        }
    });
    // Whoever is led there by mistake finds the way.
    append(&client_as(&driver, &billing), eu).await.unwrap();
    drop((first, elsewhere));
}

/// The token is not sent in clear to an address that is not on this machine, unless somebody says so.
#[test]
fn the_token_between_servers_is_not_sent_in_clear() {
    let two = Two::new();
    two.show(&two.names.add("servers", &["server"]));
    let driver = two.placement_driver("127.0.0.1:0");
    // This machine, by an address that does not say so.
    let port = driver.local_addr().port();
    let by_another_address = format!("0.0.0.0:{port}");
    let refused = two.try_range_server(&by_another_address).unwrap_err().to_string();
    for part in ["not sent in clear", "peer.token", "--peer-token-in-clear", "0.0.0.0"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!refused.contains("sbp_"), "{refused}");
    let allowed = two.try_range_server_with("rs", &by_another_address, |config| config.peer_token_in_clear = true);
    drop(allowed.unwrap());
}

/// A token that cannot be read at once, as on a disk that hangs, keeps nobody waiting but the server that it is for.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_hangs_keeps_no_client_waiting() {
    let two = Two::new();
    let token = two.names.add("servers", &["server"]);
    two.show(&token);
    let pipe = two.directory.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut config = two.config("pd", "127.0.0.1:0");
    config.roles = Roles::PlacementDriver;
    config.peer_token = Some(pipe.clone());
    let driver = Server::start(config).unwrap();
    let ranges = two.range_server(&driver);
    let root = client_as(&driver, &two.root);
    // It has to tell the range server of this one, and waits for its token.
    let making = tokio::spawn({
        let root = client_as(&driver, &two.root);
        async move { make(&root, &["s"]).await }
    });
    for _ in 0..20 {
        bounded(root.list_streams(None)).await.unwrap();
        tokio::task::yield_now().await;
    }
    // Who opens the pipe waits for somebody to read it.
    let written = tokio::task::spawn_blocking(move || fs::write(pipe, token.secret()));
    bounded(written).await.unwrap().unwrap();
    bounded(making).await.unwrap();
    drop(ranges);
}
