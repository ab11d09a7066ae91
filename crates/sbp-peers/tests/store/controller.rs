//! A controller for tests, in front of a [`TestStore`]: its streams are scaled, truncated and sealed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use sbp_pravega::controller::{
    NodeUri, SegmentInfo, SegmentLocation, SegmentLocations, SegmentRange, SegmentRanges, SegmentsAt, StreamInfo,
    Successor, Successors,
};
use sbp_pravega::{Segment as Name, SegmentId};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::store::TestStore;

/// A segment of a stream.
#[derive(Clone)]
struct Part {
    id: SegmentId,
    keys: (f64, f64),
    follows: Vec<i64>,
    is_open: bool,
    /// Whether reading begins with it.
    is_first: bool,
}

/// A running controller.
pub(crate) struct TestController {
    pub(crate) address: String,
    pub(crate) store: TestStore,
    streams: Arc<Mutex<HashMap<String, Vec<Part>>>>,
    task: JoinHandle<()>,
}

impl TestController {
    pub(crate) async fn start() -> Self {
        let store = TestStore::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let streams: Arc<Mutex<HashMap<String, Vec<Part>>>> = Arc::default();
        let (known, reached) = (Arc::clone(&streams), store.address.clone());
        let task = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (known, reached) = (Arc::clone(&known), reached.clone());
                let service = service_fn(move |request| answer(Arc::clone(&known), reached.clone(), request));
                let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service);
                serving.spawn(async move { drop(served.await) });
            }
        });
        Self {
            address,
            store,
            streams,
            task,
        }
    }

    /// Makes a stream with segments of equal shares.
    pub(crate) fn create(&self, stream: &str, segments: u32) {
        let share = 1.0 / f64::from(segments);
        let ranges = (0..segments).map(|number| (f64::from(number) * share, f64::from(number + 1) * share));
        self.open(stream, 0, ranges.map(|keys| (keys, Vec::new())).collect(), true);
    }

    /// Seals the open segments of a stream; others with these ranges of keys follow them.
    pub(crate) fn scale(&self, stream: &str, ranges: &[(f64, f64)]) {
        let sealed = self.seal(stream);
        let epoch = sealed.iter().map(|part| part.id.epoch()).max().expect("segments") + 1;
        let follows = |&(low, high): &(f64, f64)| {
            let before = sealed.iter().filter(|part| part.keys.0 < high && low < part.keys.1);
            ((low, high), before.map(|part| part.id.0).collect())
        };
        let epoch = i32::try_from(epoch).expect("a small one");
        self.open(stream, epoch, ranges.iter().map(follows).collect(), false);
    }

    /// Has a stream begin with its segments from this number on; those before it are deleted.
    #[allow(dead_code, reason = "imports alone look at what is gone")]
    pub(crate) fn begin_at(&self, stream: &str, first: i64) {
        let mut streams = self.streams.lock().expect("nobody panics with it");
        let parts = streams.get_mut(stream).expect("the stream");
        let is_gone = |part: &Part| part.id.number() < first;
        for part in parts.iter().filter(|part| is_gone(part)) {
            let name = format!("{stream}/{}", part.id);
            self.store.edit(|state| state.segments.remove(&name));
        }
        let gone: Vec<_> = parts
            .iter()
            .filter(|part| is_gone(part))
            .map(|part| part.id.0)
            .collect();
        parts.retain(|part| !is_gone(part));
        for part in parts.iter_mut() {
            part.is_first |= part.follows.iter().any(|before| gone.contains(before));
        }
    }

    /// Seals a stream; gives back the segments that were open.
    fn seal(&self, stream: &str) -> Vec<Part> {
        let mut streams = self.streams.lock().expect("nobody panics with it");
        let parts = streams.get_mut(stream).expect("the stream");
        let mut sealed = Vec::new();
        for part in parts.iter_mut().filter(|part| part.is_open) {
            part.is_open = false;
            sealed.push(part.clone());
            self.store
                .segment(&format!("{stream}/{}", part.id), |segment| segment.is_sealed = true);
        }
        sealed
    }

    fn open(&self, stream: &str, epoch: i32, parts: Vec<((f64, f64), Vec<i64>)>, is_first: bool) {
        let mut streams = self.streams.lock().expect("nobody panics with it");
        let known = streams.entry(stream.to_owned()).or_default();
        for (keys, follows) in parts {
            let number = known.last().map_or(0, |last| last.id.number() + 1);
            let id = SegmentId::new(epoch, i32::try_from(number).expect("a small one"));
            self.store.edit(|state| {
                state
                    .segments
                    .insert(format!("{stream}/{id}"), crate::store::Segment::default())
            });
            known.push(Part {
                id,
                keys,
                follows,
                is_open: true,
                is_first,
            });
        }
    }
}

impl Drop for TestController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer with its end.
struct Answer {
    data: Option<Bytes>,
    status: Option<u8>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(self.status.take().map(|status| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
            Ok(Frame::trailers(trailers))
        }))
    }
}

async fn answer(
    streams: Arc<Mutex<HashMap<String, Vec<Part>>>>,
    store: String,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let mut body = request.into_body();
    let mut asked = BytesMut::new();
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.into_data() {
            asked.extend_from_slice(&data);
        }
    }
    let asked = asked.freeze().slice(5..);
    let (data, status) = match reply(&streams, &store, &call, asked) {
        Ok(reply) => {
            let mut data = BytesMut::new();
            data.put_u8(0);
            data.put_u32(u32::try_from(reply.len()).expect("a short one"));
            data.extend_from_slice(&reply);
            (Some(data.freeze()), 0)
        }
        Err(status) => (None, status),
    };
    let mut response = Response::new(Answer {
        data,
        status: Some(status),
    });
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

/// The reply, or a status of gRPC.
fn reply(streams: &Mutex<HashMap<String, Vec<Part>>>, store: &str, call: &str, asked: Bytes) -> Result<Vec<u8>, u8> {
    const NOT_FOUND: u8 = 5;
    const UNIMPLEMENTED: u8 = 12;
    let streams = streams.lock().expect("nobody panics with it");
    let parts = |info: &StreamInfo| {
        let found = streams.get(&format!("{}/{}", info.scope, info.stream));
        found.ok_or(NOT_FOUND)
    };
    Ok(match call {
        "getURI" => {
            let (host, port) = store.rsplit_once(':').expect("an address");
            let uri = NodeUri {
                host: host.to_owned(),
                port: port.parse().expect("a port"),
            };
            uri.encode_to_vec()
        }
        "getCurrentSegments" => {
            let info = StreamInfo::decode(asked).expect("a stream");
            let open = parts(&info)?.iter().filter(|part| part.is_open);
            let segments = open.map(|part| range(&info, part)).collect();
            SegmentRanges { segments }.encode_to_vec()
        }
        "getSegments" => {
            let info = SegmentsAt::decode(asked).expect("a place").stream.expect("a stream");
            let first = parts(&info)?.iter().filter(|part| part.is_first);
            let located = first.map(|part| SegmentLocation {
                segment: Some(segment(&info, part)),
                offset: 0,
            });
            let segments = located.collect();
            SegmentLocations { segments }.encode_to_vec()
        }
        "getSegmentsImmediatelyFollowing" => {
            let of = SegmentInfo::decode(asked).expect("a segment");
            let info = of.stream.expect("a stream");
            let after = parts(&info)?.iter().filter(|part| part.follows.contains(&of.id));
            let segments = after.map(|part| Successor {
                range: Some(range(&info, part)),
                follows: part.follows.clone(),
            });
            let segments = segments.collect();
            Successors { segments }.encode_to_vec()
        }
        _ => return Err(UNIMPLEMENTED),
    })
}

fn segment(info: &StreamInfo, part: &Part) -> SegmentInfo {
    SegmentInfo {
        stream: Some(info.clone()),
        id: part.id.0,
    }
}

fn range(info: &StreamInfo, part: &Part) -> SegmentRange {
    SegmentRange {
        segment: Some(segment(info, part)),
        low: part.keys.0,
        high: part.keys.1,
    }
}

/// Adds events to a segment.
pub(crate) fn put(store: &TestStore, name: &str, contents: &[String]) {
    assert!(Name::parse(name).is_some(), "{name}");
    store.segment(name, |segment| {
        for content in contents {
            segment.data.put_i32(0);
            segment.data.put_i32(i32::try_from(content.len()).expect("a short one"));
            segment.data.put_slice(content.as_bytes());
        }
    });
}
