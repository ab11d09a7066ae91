use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sbp_client::Client;
use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_grpc::{CallError, Channel, Code};
use sbp_peers::pravega::{Pravega, PravegaConfig, PravegaErrorKind, StreamName};
use sbp_pravega::controller::{
    Continuation, Cut, GroupConfig, GroupInfo, GroupMade, RetentionPolicy, ScalingPolicy, ScopesRequest, StreamConfig,
    StreamsRequest, Tags,
};
use sbp_transport::{Descriptors, LinkSettings};
use sbp_types::Offset;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::pravega::catalog::{Kind, Making};

/// A store that only remembers what it was told.
#[derive(Debug, Default)]
struct Scripted {
    truncated: AtomicI64,
}

impl Store for Scripted {
    async fn truncate(&self, segment: &str, offset: i64) -> Result<bool, Status> {
        self.truncated.store(offset, Ordering::SeqCst);
        Ok(segment == "sc/st/1.#epoch.0")
    }

    async fn empty(&self, segment: &str) -> Result<bool, Status> {
        self.truncate(segment, i64::MAX).await
    }
}

/// A controller, at an address.
struct Served {
    address: SocketAddr,
    store: Arc<Scripted>,
    _connections: JoinSet<()>,
}

async fn serve(client: &Client, advertised: Option<(String, u16)>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(Scripted::default());
    let catalog = Arc::new(Catalog::new(client.clone()));
    let controller = Controller::new(catalog, Arc::clone(&store), advertised);
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        let mut each = JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let reached = socket.local_addr().unwrap();
            each.spawn(Arc::clone(&controller).serve(socket, reached));
        }
    });
    Served {
        address,
        store,
        _connections: connections,
    }
}

/// Calls as they are on the wire.
struct Calls(Channel);

impl Calls {
    fn new(address: SocketAddr) -> Self {
        let settings = LinkSettings {
            timeout: Duration::from_secs(20),
            tls: None,
            sockets: Descriptors::new(4),
        };
        Self(Channel::new(&address.to_string(), settings, None).unwrap())
    }

    async fn ask<Q, A>(&self, method: &str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = format!("/{SERVICE}/{method}").parse().unwrap();
        self.0.call(path, request, Duration::from_secs(30)).await
    }

    async fn status<Q: Message + 'static>(&self, method: &str, request: Q) -> i32 {
        let outcome: sbp_pravega::controller::Status = self.ask(method, request).await.unwrap();
        outcome.status
    }

    async fn exists<Q: Message + 'static>(&self, method: &str, request: Q) -> bool {
        let answer: Exists = self.ask(method, request).await.unwrap();
        answer.exists
    }
}

fn scope(name: &str) -> ScopeInfo {
    ScopeInfo { scope: name.to_owned() }
}

fn info(scope: &str, stream: &str) -> StreamInfo {
    StreamInfo {
        scope: scope.to_owned(),
        stream: stream.to_owned(),
    }
}

fn config(stream: StreamInfo, segments: i32) -> StreamConfig {
    StreamConfig {
        stream: Some(stream),
        scaling: Some(ScalingPolicy {
            segments,
            ..ScalingPolicy::default()
        }),
        retention: Some(RetentionPolicy {
            kind: 2,
            value: 1 << 40,
            most: 0,
        }),
        tags: Some(Tags {
            tags: vec![String::from("blue")],
        }),
    }
}

fn code<A: std::fmt::Debug>(answer: Result<A, CallError>) -> Code {
    match answer {
        Err(CallError::Status { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_table_is_answered() {
    let server = servers::start(None);
    let client = client(server.address());
    let served = serve(&client, None).await;
    let calls = Calls::new(served.address);
    bounded(scopes_and_streams(&calls)).await;
    bounded(segments(&calls, &served)).await;
    bounded(lists(&calls)).await;
    bounded(groups(&calls)).await;
    bounded(ends(&calls)).await;
    drop(served);
    client.close().await;
    server.shutdown().unwrap();
}

async fn scopes_and_streams(calls: &Calls) {
    for (name, status) in [("sc", 0), ("sc", 2), ("2026", 3), ("_x", 3), ("a/b", 3), ("", 3)] {
        assert_eq!(calls.status("createScope", scope(name)).await, status, "{name:?}");
    }
    assert!(calls.exists("checkScopeExists", scope("sc")).await);
    assert!(!calls.exists("checkScopeExists", scope("other")).await);
    let stream = info("sc", "st");
    for (asked, status) in [
        (config(info("other", "st"), 1), 3),
        (config(info("sc", "ä"), 1), 4),
        (config(stream.clone(), 0), 1),
        (config(stream.clone(), i32::MAX), 1),
        (config(stream.clone(), 3), 0),
        (config(stream.clone(), 3), 2),
        (config(stream.clone(), 1), 2),
    ] {
        assert_eq!(calls.status("createStream", asked.clone()).await, status, "{asked:?}");
    }
    assert!(calls.exists("checkStreamExists", stream.clone()).await);
    assert!(!calls.exists("checkStreamExists", info("sc", "other")).await);
    let told: StreamConfig = calls.ask("getStreamConfiguration", stream.clone()).await.unwrap();
    assert_eq!(told, config(stream.clone(), 3));
    let changed = StreamConfig {
        tags: None,
        ..config(stream.clone(), 3)
    };
    assert_eq!(calls.status("updateStream", changed.clone()).await, 0);
    assert_eq!(calls.status("updateStream", config(stream.clone(), 4)).await, 1);
    assert_eq!(calls.status("updateStream", config(info("sc", "other"), 3)).await, 2);
    let told: StreamConfig = calls.ask("getStreamConfiguration", stream).await.unwrap();
    assert_eq!(told, changed);
    let none: Result<StreamConfig, _> = calls.ask("getStreamConfiguration", info("sc", "other")).await;
    assert_eq!(code(none), Code::NotFound);
    let none: Result<Exists, _> = calls.ask("createTransaction", info("sc", "st")).await;
    assert_eq!(code(none), Code::Unimplemented);
    let none: Result<Exists, _> = calls.ask("getURI", SegmentInfo::default()).await;
    assert_eq!(code(none), Code::InvalidArgument);
}

async fn segments(calls: &Calls, served: &Served) {
    let stream = info("sc", "st");
    let ranges: SegmentRanges = calls.ask("getCurrentSegments", stream.clone()).await.unwrap();
    let ids = |segment: &Option<SegmentInfo>| segment.as_ref().unwrap().id;
    let told: Vec<_> = ranges
        .segments
        .iter()
        .map(|range| (ids(&range.segment), range.low, range.high))
        .collect();
    assert_eq!(
        told,
        [(0, 0.0, 1.0 / 3.0), (1, 1.0 / 3.0, 2.0 / 3.0), (2, 2.0 / 3.0, 1.0)]
    );
    let at = SegmentsAt {
        stream: Some(stream.clone()),
        time: 0,
    };
    let located: SegmentLocations = calls.ask("getSegments", at).await.unwrap();
    let told: Vec<_> = located
        .segments
        .iter()
        .map(|each| (ids(&each.segment), each.offset))
        .collect();
    assert_eq!(told, [(0, 0), (1, 0), (2, 0)]);
    let segment = |id| SegmentInfo {
        stream: Some(stream.clone()),
        id,
    };
    for method in ["getSegmentsImmediatelyFollowing", "getSegmentsImmediatlyFollowing"] {
        let following: Successors = calls.ask(method, segment(0)).await.unwrap();
        assert_eq!(following, Successors::default());
    }
    let uri: NodeUri = calls.ask("getURI", segment(1)).await.unwrap();
    assert_eq!(
        (uri.host.as_str(), uri.port),
        ("127.0.0.1", i32::from(served.address.port()))
    );
    assert!(calls.exists("isSegmentValid", segment(2)).await);
    assert!(!calls.exists("isSegmentValid", segment(3)).await);
    assert!(!calls.exists("isSegmentValid", segment(1 << 32)).await);
    let none: Result<SegmentRanges, _> = calls.ask("getCurrentSegments", info("sc", "other")).await;
    assert_eq!(code(none), Code::NotFound);
    // Streams that clients have for themselves are there when asked for, in scopes that there are.
    for name in ["_MARKst", "_RGother"] {
        let ranges: SegmentRanges = calls.ask("getCurrentSegments", info("sc", name)).await.unwrap();
        assert_eq!(ranges.segments.len(), 1);
    }
    let none: Result<SegmentRanges, _> = calls.ask("getCurrentSegments", info("none", "_MARKst")).await;
    assert_eq!(code(none), Code::NotFound);
    let token: DelegationToken = calls.ask("getDelegationToken", stream.clone()).await.unwrap();
    assert_eq!(token.token, "");
    let cut = |id, offset| Cut {
        stream: Some(stream.clone()),
        offsets: [(id, offset)].into(),
    };
    assert_eq!(calls.status("truncateStream", cut(1, 77)).await, 0);
    assert_eq!(served.store.truncated.load(Ordering::SeqCst), 77);
    assert_eq!(calls.status("truncateStream", cut(3, 1)).await, 1);
    let unknown = Cut {
        stream: Some(info("sc", "other")),
        ..Cut::default()
    };
    assert_eq!(calls.status("truncateStream", unknown).await, 2);
}

async fn lists(calls: &Calls) {
    let first: sbp_pravega::controller::Scopes = calls.ask("listScopes", ScopesRequest::default()).await.unwrap();
    assert_eq!(first.scopes, ["sc"]);
    let next = ScopesRequest {
        continuation: first.continuation,
    };
    let rest: sbp_pravega::controller::Scopes = calls.ask("listScopes", next).await.unwrap();
    assert!(rest.scopes.is_empty());
    let in_scope = |name: &str, token: &str| StreamsRequest {
        scope: Some(scope(name)),
        continuation: Some(Continuation {
            token: token.to_owned(),
        }),
    };
    let all: sbp_pravega::controller::Streams = calls.ask("listStreamsInScope", in_scope("sc", "")).await.unwrap();
    let names: Vec<_> = all.streams.iter().map(|each| each.stream.as_str()).collect();
    assert_eq!(names, ["_MARKst", "_RGother", "st"]);
    let rest: sbp_pravega::controller::Streams = calls.ask("listStreamsInScope", in_scope("sc", "st")).await.unwrap();
    assert!(rest.streams.is_empty());
    let none: sbp_pravega::controller::Streams = calls.ask("listStreamsInScope", in_scope("none", "")).await.unwrap();
    assert_eq!(none.status, 1);
}

/// A reader group, and something that is said of it, which is told again as it was said.
#[derive(Clone, PartialEq, Eq, Message)]
struct Asked {
    #[prost(string, tag = "1")]
    scope: String,
    #[prost(string, tag = "2")]
    group: String,
    #[prost(int64, tag = "9")]
    more: i64,
}

async fn groups(calls: &Calls) {
    let group = |scope: &str, name: &str| GroupInfo {
        scope: scope.to_owned(),
        group: name.to_owned(),
    };
    let asked = |more| Asked {
        scope: String::from("sc"),
        group: String::from("group"),
        more,
    };
    let made: GroupMade = calls.ask("createReaderGroup", asked(7)).await.unwrap();
    assert_eq!((made.status, Asked::decode(made.config).unwrap()), (0, asked(7)));
    let again: GroupMade = calls.ask("createReaderGroup", asked(8)).await.unwrap();
    assert_eq!(Asked::decode(again.config).unwrap(), asked(7), "the first one counts");
    let told: GroupConfig = calls.ask("getReaderGroupConfig", group("sc", "group")).await.unwrap();
    assert_eq!((told.status, Asked::decode(told.config).unwrap()), (0, asked(7)));
    // There is a stream for this one, and nothing was said of it.
    for name in ["other", "none"] {
        let told: GroupConfig = calls.ask("getReaderGroupConfig", group("sc", name)).await.unwrap();
        assert_eq!((told.status, told.config.len()), (2, 0));
    }
    for (scope, name, status) in [("none", "group", 2), ("sc", "", 3), ("sc", "ä", 3)] {
        let made: GroupMade = calls.ask("createReaderGroup", group(scope, name)).await.unwrap();
        assert_eq!(made.status, status);
    }
    assert_eq!(calls.status("deleteReaderGroup", group("sc", "group")).await, 0);
    assert_eq!(calls.status("deleteReaderGroup", group("sc", "group")).await, 2);
    assert_eq!(calls.status("deleteReaderGroup", group("sc", "other")).await, 0);
}

async fn ends(calls: &Calls) {
    let stream = info("sc", "st");
    assert_eq!(calls.status("deleteScope", scope("sc")).await, 3, "it is not empty");
    assert_eq!(calls.status("deleteScope", scope("none")).await, 2);
    assert_eq!(
        calls.status("deleteStream", stream.clone()).await,
        3,
        "it is not sealed"
    );
    assert_eq!(calls.status("sealStream", info("sc", "other")).await, 2);
    for _ in 0..2 {
        assert_eq!(calls.status("sealStream", stream.clone()).await, 0);
    }
    let none: SegmentRanges = calls.ask("getCurrentSegments", stream.clone()).await.unwrap();
    assert_eq!(none.segments.len(), 0, "nothing can be appended");
    let at = SegmentsAt {
        stream: Some(stream.clone()),
        time: 0,
    };
    let located: SegmentLocations = calls.ask("getSegments", at).await.unwrap();
    assert_eq!(located.segments.len(), 3, "what is there can be read");
    assert_eq!(calls.status("deleteStream", stream.clone()).await, 0);
    assert_eq!(calls.status("deleteStream", stream.clone()).await, 2);
    let none: Result<SegmentRanges, _> = calls.ask("getCurrentSegments", stream).await;
    assert_eq!(code(none), Code::NotFound);
    // The stream's marks went with it.
    assert_eq!(calls.status("deleteScope", scope("sc")).await, 0);
    assert!(!calls.exists("checkScopeExists", scope("sc")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_finds_what_it_has_made() {
    let server = servers::start(None);
    let client = client(server.address());
    let advertised = Some((String::from("localhost"), 6_000));
    let served = serve(&client, advertised).await;
    let runtime = tokio::runtime::Handle::current();
    let pravega = Pravega::new(&served.address.to_string(), PravegaConfig::default(), runtime).unwrap();
    let name = |stream: &str| StreamName {
        scope: String::from("sc"),
        stream: stream.to_owned(),
    };
    pravega.create_scope("sc").await.unwrap();
    pravega.create_stream(&name("st"), 2).await.unwrap();
    let again = pravega.create_stream(&name("st"), 2).await.unwrap_err();
    assert_eq!(again.kind(), PravegaErrorKind::Refused, "{again}");
    assert_eq!(pravega.scopes().await.unwrap(), ["sc"]);
    assert_eq!(pravega.streams("sc").await.unwrap(), [name("st")]);
    assert_eq!(pravega.current_segments(&name("st")).await.unwrap().len(), 2);
    let none = pravega.current_segments(&name("other")).await.unwrap_err();
    assert_eq!(none.kind(), PravegaErrorKind::UnknownName, "{none}");
    let segment = SegmentInfo {
        stream: Some(info("sc", "st")),
        id: 0,
    };
    let uri: NodeUri = Calls::new(served.address).ask("getURI", segment).await.unwrap();
    assert_eq!(
        (uri.host.as_str(), uri.port),
        ("localhost", 6_000),
        "where it was told to send clients"
    );
    pravega.seal_stream(&name("st")).await.unwrap();
    pravega.delete_stream(&name("st")).await.unwrap();
    pravega.close().await;
    drop(served);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_change_is_finished_by_who_makes_the_stream_next() {
    let server = servers::start(None);
    let client = client(server.address());
    let catalog = Catalog::new(client.clone());
    let served = serve(&client, None).await;
    let calls = Calls::new(served.address);
    assert_eq!(calls.status("createScope", scope("sc")).await, 0);
    // Three segments were to be made, and one was.
    let segment = |number| sbp_pravega::Segment::parse(&format!("sc/st/{number}.#epoch.0")).unwrap();
    let said = [(crate::pravega::catalog::COUNT, String::from("3"))];
    let made = catalog.create_all(&[segment(0)], &said).await.unwrap();
    assert_eq!(made, [Making::Made]);
    let stream = info("sc", "st");
    assert!(!calls.exists("checkStreamExists", stream.clone()).await);
    assert_eq!(calls.status("createStream", config(stream.clone(), 2)).await, 2);
    let ranges: SegmentRanges = calls.ask("getCurrentSegments", stream.clone()).await.unwrap();
    assert_eq!(ranges.segments.len(), 3, "as it was begun");
    // Of the three that were to be deleted the first ones are left.
    assert_eq!(calls.status("sealStream", stream.clone()).await, 0);
    assert!(catalog.delete("sc/st/2.#epoch.0").await.unwrap());
    // What is known may be a second old.
    let gone = async { while calls.exists("checkStreamExists", stream.clone()).await {} };
    bounded(gone).await;
    assert_eq!(calls.status("createStream", config(stream.clone(), 2)).await, 0);
    let ranges: SegmentRanges = calls.ask("getCurrentSegments", stream.clone()).await.unwrap();
    assert_eq!(ranges.segments.len(), 2);
    drop(served);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_make_a_stream_once() {
    let server = servers::start(None);
    let client = client(server.address());
    let served = [serve(&client, None).await, serve(&client, None).await];
    let calls: Vec<_> = served
        .iter()
        .map(|served| Arc::new(Calls::new(served.address)))
        .collect();
    assert_eq!(calls[0].status("createScope", scope("sc")).await, 0);
    for round in 0..20 {
        let stream = info("sc", &format!("st{round}"));
        let mut making = JoinSet::new();
        for calls in &calls {
            let (calls, asked) = (Arc::clone(calls), config(stream.clone(), 3));
            making.spawn(async move { calls.status("createStream", asked).await });
        }
        let mut statuses = making.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses, [0, 2], "one has made it");
        for calls in &calls {
            let ranges: SegmentRanges = calls.ask("getCurrentSegments", stream.clone()).await.unwrap();
            assert_eq!(ranges.segments.len(), 3);
        }
    }
    drop(served);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_are_made_changed_and_deleted() {
    let server = servers::start(None);
    let client = client(server.address());
    let catalog = Catalog::new(client.clone());
    let name = "sc/st/0.#epoch.0";
    assert!(catalog.segment(name).await.unwrap().is_none());
    assert_eq!(catalog.create(name, Kind::Bytes).await.unwrap(), Making::Made);
    assert_eq!(catalog.create(name, Kind::Bytes).await.unwrap(), Making::Exists);
    assert_eq!(
        catalog.create("sc/st/0.#epoch.1", Kind::Bytes).await.unwrap(),
        Making::Invalid
    );
    assert!(catalog.truncate(name, 19, Offset(0)).await.unwrap());
    assert!(catalog.truncate(name, 7, Offset(0)).await.unwrap());
    assert!(catalog.seal(name).await.unwrap() && catalog.seal(name).await.unwrap());
    let held = catalog.segment(name).await.unwrap().unwrap();
    assert_eq!((held.start(), held.is_sealed()), (19, true));
    assert!(catalog.delete(name).await.unwrap());
    assert!(!catalog.delete(name).await.unwrap());
    assert!(!catalog.seal(name).await.unwrap() && !catalog.truncate(name, 1, Offset(0)).await.unwrap());
    // Streams that are there already are none of Pravega's.
    sbp_e2e::clients::streams(&client, &["sc/native/0"]).await;
    assert!(catalog.segment("sc/native/0.#epoch.0").await.unwrap().is_none());
    assert_eq!(
        catalog.create("sc/native/0.#epoch.0", Kind::Table).await.unwrap(),
        Making::Exists
    );
    client.close().await;
    server.shutdown().unwrap();
}
