//! Who is not trusted, and what is said about it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sbp_client::{AppendOptions, ClientTlsFiles, ErrorKind};
use sbp_e2e::batches::records;
use sbp_e2e::certificates::Authority;
use sbp_e2e::servers::quick_anywhere;
use sbp_e2e::wait::{PATIENCE, bounded, until};
use sbp_types::StreamId;

use crate::setting::{Setting, client, refusal, says};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_expired_certificate_is_told_with_its_date() {
    let setting = Setting::new();
    let issued = setting.authority.issue_expired("old", &["localhost", "127.0.0.1"]);
    let server = setting.server_with(&issued, |_| ());
    let error = refusal(&setting.client(&server)).await;
    says(
        &error,
        &[
            "localhost, 127.0.0.1",
            "authority",
            "it expired at 2021-02-03T00:00:00Z",
            server.address(),
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificate_for_another_name_is_told_with_both_names() {
    let setting = Setting::new();
    let issued = setting.authority.issue("other", &["db.example.com", "*.example.org"]);
    let server = setting.server_with(&issued, |_| ());
    let error = refusal(&setting.client(&server)).await;
    says(&error, &["\"127.0.0.1\"", "expected", "db.example.com, *.example.org"]);
    // What is expected can be said.
    let mut named = setting.trusting();
    named.server_name = Some("x.example.org".to_owned());
    bounded(client(server.address(), Some(named)).unwrap().connect(None))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_authority_that_is_not_trusted_is_named() {
    let setting = Setting::new();
    let server = setting.server();
    let strangers = Authority::new(setting.directory.path(), "strangers");
    let trusting = ClientTlsFiles {
        ca: Some(strangers.file()),
        ..ClientTlsFiles::default()
    };
    let error = refusal(&client(server.address(), Some(trusting)).unwrap()).await;
    says(
        &error,
        &[
            "issued by \"CN=authority\"",
            "no authority that is trusted",
            "authority of the server",
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_plain_client_is_told_of_tls() {
    let setting = Setting::new();
    let server = setting.server();
    let plain = client(server.address(), None).unwrap();
    let error = refusal(&plain).await;
    says(&error, &["the server speaks TLS", "sbps://"]);
    // Appends are told as soon, and nothing of them was done.
    let options = AppendOptions::default();
    let error = bounded(plain.append(StreamId(1), records(["x"]), &options))
        .await
        .unwrap_err();
    assert_eq!((error.code().0, error.kind()), (9020, ErrorKind::Unreachable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_with_tls_is_told_of_a_plain_server() {
    let setting = Setting::new();
    let server = quick_anywhere();
    let secured = setting.client(&server);
    let error = refusal(&secured).await;
    says(&error, &["does not speak TLS", "sbp://", server.address()]);
    let options = AppendOptions::default();
    let error = bounded(secured.append(StreamId(1), records(["x"]), &options))
        .await
        .unwrap_err();
    assert_eq!(error.code().0, 9020);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let setting = Setting::new();
    let missing = setting.directory.path().join("missing.pem");
    let empty = setting.directory.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let one = setting.authority.issue("one", &["a"]);
    let two = setting.authority.issue("two", &["b"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let refused = |files: ClientTlsFiles| client("h:1", Some(files)).unwrap_err();
    let ca = |path| ClientTlsFiles {
        ca: Some(path),
        ..ClientTlsFiles::default()
    };
    says(&refused(ca(missing)), &["missing.pem", "No such file"]);
    says(&refused(ca(empty)), &["empty.pem", "BEGIN CERTIFICATE"]);
    let pair = |cert, key| ClientTlsFiles {
        cert,
        key,
        ..setting.trusting()
    };
    says(
        &refused(pair(Some(one.cert.clone()), Some(two.key.clone()))),
        &["two.key", "one.crt", "not that of"],
    );
    says(&refused(pair(Some(one.cert.clone()), None)), &["the key is missing"]);
    says(
        &refused(pair(None, Some(one.key.clone()))),
        &["the certificate is missing"],
    );
    says(
        &refused(pair(Some(one.cert.clone()), Some(one.cert.clone()))),
        &["one.crt", "private key"],
    );
    let mut named = setting.trusting();
    named.server_name = Some("no name".to_owned());
    says(&refused(named), &["no name", "host name"]);
}

/// What a client that means TLS says first.
const HALF_A_HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01";

#[test]
fn half_a_handshake_is_held_for_its_time_and_delays_nobody() {
    let setting = Setting::new();
    let issued = setting.server_certificate();
    let server = setting.server_with(&issued, |config| config.handshake_timeout = Duration::from_millis(500));
    let held: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(server.local_addr()).unwrap();
            stream.write_all(HALF_A_HANDSHAKE).unwrap();
            stream
        })
        .collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = setting.client(&server);
        bounded(client.connect(None)).await.unwrap();
        bounded(client.close()).await;
    });
    for mut stream in held {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Closed, by whatever word.
        assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)));
    }
    until("their end", || (server.stats().connections_open == 0).then_some(()));
}

#[test]
fn a_server_that_ends_does_not_wait_for_handshakes() {
    let setting = Setting::new();
    let issued = setting.server_certificate();
    let server = setting.server_with(&issued, |config| {
        config.handshake_timeout = Duration::from_secs(3_600);
        config.shutdown_grace = Duration::from_secs(3_600);
    });
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.write_all(HALF_A_HANDSHAKE).unwrap();
    until("the connection", || {
        (server.stats().connections_open == 1).then_some(())
    });
    let ended = std::thread::spawn(move || server.shutdown());
    until("the end", || ended.is_finished().then_some(()));
    ended.join().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_says_nothing_in_the_handshake_is_left_in_time_and_tried_again() {
    let setting = Setting::new();
    // As one that was stopped: its kernel completes connections, and nobody reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut config = sbp_client::ClientConfig::with_tls(&address, Some(setting.trusting())).unwrap();
    config.connect_timeout = Duration::from_millis(200);
    config.retry.first_connect_wait = Duration::from_millis(500);
    let client = sbp_client::Client::new(config, tokio::runtime::Handle::current());
    let began = Instant::now();
    let error = bounded(client.connect(Some(PATIENCE))).await.unwrap_err();
    assert_eq!(error.code().0, 9001, "{error}");
    assert!(error.is_retriable());
    says(&error, &["TLS", "not over within 200ms"]);
    assert!(began.elapsed() < PATIENCE);
    // And once it speaks, it is reached.
    let listen = address.clone();
    drop(listener);
    let issued = setting.server_certificate();
    let _server = setting.server_with(&issued, |config| config.listen = listen);
    bounded(client.connect(None)).await.unwrap();
}
