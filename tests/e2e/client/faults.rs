//! What one fault does to one call: a client and a server with the proxy between them.

use std::time::Duration;

use sbp_client::{Ack, AppendOptions, Client, ErrorKind, WriterOptions};
use sbp_e2e::clients::{client, stream};
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::bounded;
use sbp_proxy::{Proxy, ProxyConfig};
use sbp_server::{Server, ServerConfig};
use sbp_types::{Offset, StreamId};

/// A server, a proxy in front of it, a client that goes through it, and a stream.
struct Scene {
    _server: Server,
    proxy: Proxy,
    client: Client,
    stream: StreamId,
}

impl Scene {
    async fn set() -> Self {
        let proxy = Proxy::start(ProxyConfig::default()).unwrap();
        let server = Server::start(ServerConfig {
            advertise: Some(proxy.address()),
            ..quick_config(None, "127.0.0.1:0")
        })
        .unwrap();
        proxy.set_target(Some(server.local_addr().to_string()));
        let client = client(&proxy.address());
        let stream = bounded(stream(&client)).await;
        Self {
            _server: server,
            proxy,
            client,
            stream,
        }
    }

    fn rule(&self, rule: &str) {
        self.proxy.add(rule.parse().unwrap());
    }

    async fn end(&self) -> i64 {
        let found = bounded(self.client.positions(&[self.stream], None)).await.unwrap();
        found[0].as_ref().unwrap().latest.0
    }

    fn writer(&self, attempt_timeout: Duration) -> sbp_client::Writer {
        let options = WriterOptions {
            attempt_timeout,
            ..WriterOptions::default()
        };
        self.client.writer(self.stream, options)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_is_lost_leaves_a_plain_append_in_doubt_and_an_idempotent_one_not() {
    let scene = Scene::set().await;
    scene.rule("cut answer APPEND nth=1");
    let plain = bounded(
        scene
            .client
            .append(scene.stream, b"a".as_slice(), &AppendOptions::default()),
    )
    .await;
    assert_eq!(plain.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(scene.end().await, 1, "it was stored all the same");

    scene.proxy.clear();
    scene.rule("cut answer APPEND nth=1");
    let writer = scene.writer(Duration::from_secs(10));
    let Ack {
        base_offset, duplicate, ..
    } = bounded(writer.append(b"b".as_slice())).await.unwrap();
    assert_eq!((base_offset, duplicate), (Some(Offset(1)), true));
    assert_eq!(scene.end().await, 2, "and stored once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn frames_that_vanish_are_sent_again_when_their_time_is_over() {
    for lost in ["request", "answer"] {
        let scene = Scene::set().await;
        scene.rule(&format!("drop {lost} APPEND nth=1"));
        let writer = scene.writer(Duration::from_millis(100));
        let ack = bounded(writer.append(b"a".as_slice())).await.unwrap();
        assert_eq!(
            (ack.base_offset, ack.duplicate),
            (Some(Offset(0)), lost == "answer"),
            "{lost}"
        );
        assert_eq!(scene.end().await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_was_cut_off_was_not_stored() {
    let scene = Scene::set().await;
    // Its last byte is missing, so the server cannot have started it, but the client cannot know.
    scene.rule("cut=40 request APPEND nth=1");
    let plain = bounded(
        scene
            .client
            .append(scene.stream, b"a".as_slice(), &AppendOptions::default()),
    )
    .await;
    assert_eq!(plain.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(scene.end().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_overtake_reach_their_own_calls() {
    let scene = Scene::set().await;
    scene.rule("reorder=2 answer APPEND every=3");
    scene.rule("delay=5ms answer APPEND every=4");
    let appends: Vec<_> = (0..60)
        .map(|number: u8| {
            let (client, stream) = (scene.client.clone(), scene.stream);
            tokio::spawn(async move {
                let options = AppendOptions::default();
                (number, client.append(stream, vec![number], &options).await.unwrap())
            })
        })
        .collect();
    let mut offsets = Vec::new();
    for append in appends {
        let (number, ack) = bounded(append).await.unwrap();
        let entry = sbp_client::Span {
            stream: scene.stream,
            start: ack.base_offset.unwrap(),
            end: Offset(ack.base_offset.unwrap().0 + 1),
        };
        let mut reader = scene.client.reader(vec![entry], sbp_client::ReaderOptions::default());
        let found = bounded(reader.next()).await.unwrap().unwrap();
        assert_eq!(
            found.bytes.last_chunk::<16>().unwrap()[0],
            number,
            "the record at its offset"
        );
        offsets.push(ack.base_offset.unwrap().0);
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..60).collect::<Vec<_>>());
    let counts = scene.proxy.counts();
    assert!(counts.reordered >= 15 && counts.delayed >= 5, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_comes_twice_does_no_harm() {
    let scene = Scene::set().await;
    scene.rule("duplicate answer");
    let options = AppendOptions::default();
    for number in 0..20 {
        let append = scene.client.append(scene.stream, b"x".as_slice(), &options);
        assert_eq!(bounded(append).await.unwrap().base_offset, Some(Offset(number)));
    }
    assert_eq!(scene.proxy.counts().connections, 1, "nobody was offended");
}
