//! Range servers against a scripted placement driver, and a placement driver against scripted range servers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_e2e::admin::{Admin, bounds, range_id, try_seal};
use sbp_e2e::batches::bodies;
use sbp_e2e::frames::frame_bytes;
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::config;
use sbp_e2e::wait::PATIENCE;
use sbp_frame::{Flags, Frame, FrameHead, OpCode};
use sbp_messages::{
    ClientRole, CreateStreamsRequest, CreateStreamsResponse, DescribePlacementDriverClusterRequest,
    DescribePlacementDriverClusterResponse, DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse,
    DescribeStreamResult, DescribeStreamsRequest, DescribeStreamsResponse, Encoder, ErrorCode, Feature, FetchResponse,
    HeartbeatRequest, HeartbeatResponse, IdAllocationRequest, IdAllocationResponse, ListRangesRequest,
    ListRangesResponse, ListRangesResult, Message, PlacementDriverCluster, PlacementDriverNode, Range, RangeId,
    RangeServer, ReplicaServer, ReportMetricsRequest, ReportMetricsResponse, SealKind, SealRangesRequest,
    SealRangesResponse, SealRangesResult, Status, Stream, StreamRanges, SyncRangesRequest, SyncRangesResponse,
    SyncRangesResult,
};
use sbp_server::{ClusterTimes, Roles, Server, ServerConfig};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};

/// What the scripted server knows and has seen.
#[derive(Default)]
pub(super) struct Known {
    pub(super) streams: BTreeMap<StreamId, Vec<Range>>,
    pub(super) greetings: Vec<HeartbeatRequest>,
    pub(super) reports: Vec<ReportMetricsRequest>,
    pub(super) synced: Vec<StreamRanges>,
    pub(super) calls: Vec<OpCode>,
    /// Requests are read and not answered.
    pub(super) silent: bool,
    /// The same of one kind of request alone.
    silent_about: Option<OpCode>,
    /// The addresses of the placement drivers, where there are several.
    members: Vec<String>,
    /// The number that is given next is higher by this.
    given: i32,
}

/// A server that answers as it is told, on threads that live as long as the test.
pub(super) struct Scripted {
    pub(super) address: String,
    known: Arc<(Mutex<Known>, Condvar)>,
    ended: Arc<AtomicBool>,
}

/// The number that it gives out.
pub(super) const GIVEN: ServerId = ServerId(7);

impl Scripted {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let known = Arc::new((Mutex::default(), Condvar::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let (shared, is_ended) = (Arc::clone(&known), Arc::clone(&ended));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_ended.load(Ordering::Relaxed) {
                    return;
                }
                let known = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &known));
            }
        });
        Self { address, known, ended }
    }

    /// Whoever dials it is refused from now on.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        while TcpStream::connect(&self.address).is_ok() {
            std::thread::yield_now();
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.0.lock().unwrap());
    }

    /// Waits until something was seen.
    pub(super) fn wait<T>(&self, what: &str, look: impl Fn(&Known) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let (known, changed) = &*self.known;
        let mut known = known.lock().unwrap();
        loop {
            if let Some(found) = look(&known) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come: {:?}", known.calls);
            known = changed.wait_timeout(known, left).unwrap().0;
        }
    }

    fn count(&self, opcode: OpCode) -> usize {
        let known = self.known.0.lock().unwrap();
        known.calls.iter().filter(|call| **call == opcode).count()
    }
}

fn serve(mut stream: TcpStream, known: &(Mutex<Known>, Condvar)) {
    let mut received = BytesMut::new();
    let mut block = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut block) {
        received.extend_from_slice(&block[..count]);
        while let Some(frame) = Frame::decode(&mut received).unwrap() {
            let answer = {
                let mut state = known.0.lock().unwrap();
                state.calls.push(frame.opcode);
                let answer = answer(&mut state, &frame);
                known.1.notify_all();
                answer.filter(|_| !state.silent && state.silent_about != Some(frame.opcode))
            };
            let Some(header) = answer else { continue };
            let head = FrameHead {
                opcode: frame.opcode,
                flags: Flags::RESPONSE | Flags::END,
                raw_call_id: frame.call_id.raw(),
                format: 1,
            };
            if stream.write_all(&frame_bytes(head, &header, b"")).is_err() {
                return;
            }
        }
    }
}

fn encoded<M: Message>(message: &M) -> Option<BytesMut> {
    let mut header = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut header);
    Some(header)
}

fn answer(known: &mut Known, frame: &Frame) -> Option<BytesMut> {
    match frame.opcode {
        OpCode::HEARTBEAT => {
            let request = HeartbeatRequest::decode(&frame.header).unwrap();
            known.greetings.push(request.clone());
            encoded(&HeartbeatResponse {
                client_role: request.client_role,
                connection_id: 1,
                protocol_revision: 1,
                ..Default::default()
            })
        }
        OpCode::ALLOCATE_ID => {
            assert!(!IdAllocationRequest::decode(&frame.header).unwrap().host.is_empty());
            encoded(&IdAllocationResponse {
                id: GIVEN.0 + known.given,
                status: Status::success(),
            })
        }
        OpCode::LIST_RANGES => {
            let request = ListRangesRequest::decode(&frame.header).unwrap();
            let criteria = &request.range_criteria[0];
            // Without a server it asks where the stream begins.
            assert!(
                criteria
                    .range_server
                    .as_ref()
                    .is_none_or(|asks| asks.server_id == GIVEN)
            );
            let ranges = known.streams.iter();
            let ranges = ranges.filter(|(stream, _)| criteria.stream_id.is_none_or(|wanted| wanted == **stream));
            encoded(&ListRangesResponse {
                list_responses: vec![ListRangesResult {
                    range_criteria: Some(criteria.clone()),
                    ranges: ranges.flat_map(|(_, ranges)| ranges).cloned().collect(),
                    status: Status::success(),
                }],
                ..Default::default()
            })
        }
        OpCode::DESCRIBE_STREAMS => {
            let request = DescribeStreamsRequest::decode(&frame.header).unwrap();
            let describe = |id: &StreamId| DescribeStreamResult {
                stream: Some(Stream {
                    stream_id: *id,
                    replica_nums: 1,
                    ack_count: 1,
                    retention_bytes: -1,
                    ..Stream::default()
                }),
                status: match known.streams.contains_key(id) {
                    true => Status::success(),
                    false => Status::error(ErrorCode::NOT_FOUND, "there is no such stream"),
                },
            };
            encoded(&DescribeStreamsResponse {
                describe_responses: request.stream_ids.iter().map(describe).collect(),
                ..Default::default()
            })
        }
        OpCode::SYNC_RANGES => {
            let request = SyncRangesRequest::decode(&frame.header).unwrap();
            known.synced.extend(request.stream_ranges.iter().cloned());
            let results = request.stream_ranges.into_iter().map(|told| SyncRangesResult {
                stream_id: told.stream_id,
                ranges: told.ranges,
                status: Status::success(),
            });
            encoded(&SyncRangesResponse {
                sync_responses: results.collect(),
                ..Default::default()
            })
        }
        OpCode::DESCRIBE_RANGES => {
            // Every range that it holds is open and empty.
            let request = DescribeRangesRequest::decode(&frame.header).unwrap();
            let describe = |id: &RangeId| {
                let held = known.synced.iter().flat_map(|told| &told.ranges);
                let mut held =
                    held.filter(|range| (range.stream_id, Some(range.range_index)) == (id.stream_id, id.range_index));
                DescribeRangeResult {
                    stream_id: id.stream_id,
                    range: held.next().map(|range| Range {
                        next_offset: range.start_offset,
                        ..range.clone()
                    }),
                    status: Status::success(),
                }
            };
            encoded(&DescribeRangesResponse {
                describe_responses: request.ranges.iter().map(describe).collect(),
                ..Default::default()
            })
        }
        OpCode::SEAL_RANGES => {
            // Every range that is sealed has three records.
            let request = SealRangesRequest::decode(&frame.header).unwrap();
            let seal = |id: &RangeId| SealRangesResult {
                stream_id: id.stream_id,
                range: Some(Range {
                    stream_id: id.stream_id,
                    range_index: id.range_index.unwrap(),
                    end_offset: Some(Offset(3)),
                    next_offset: Offset(3),
                    ..Range::default()
                }),
                status: Status::success(),
                ..SealRangesResult::default()
            };
            encoded(&SealRangesResponse {
                seal_responses: request.ranges.iter().map(seal).collect(),
                ..Default::default()
            })
        }
        OpCode::REPORT_METRICS => {
            let request = ReportMetricsRequest::decode(&frame.header).unwrap();
            known.reports.push(request);
            encoded(&ReportMetricsResponse::default())
        }
        OpCode::DESCRIBE_PD_CLUSTER => {
            let request = DescribePlacementDriverClusterRequest::decode(&frame.header).unwrap();
            assert_eq!(request.range_server.unwrap().server_id, GIVEN);
            assert!(request.timeout_ms > 0);
            let node = |address: &String| PlacementDriverNode {
                advertise_addr: address.clone(),
                ..Default::default()
            };
            encoded(&DescribePlacementDriverClusterResponse {
                cluster: Some(PlacementDriverCluster {
                    nodes: known.members.iter().map(node).collect(),
                    ..PlacementDriverCluster::default()
                }),
                ..Default::default()
            })
        }
        _ => None,
    }
}

fn range(stream: StreamId, index: i32, start: i64, server: ServerId) -> Range {
    Range {
        stream_id: stream,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        epoch: Some(Epoch(i64::from(index))),
        servers: vec![ReplicaServer {
            range_server: Some(RangeServer {
                server_id: server,
                advertise_addr: String::new(),
                ..RangeServer::default()
            }),
            is_primary: true,
            ..ReplicaServer::default()
        }],
        ..Range::default()
    }
}

pub(super) fn range_server(directory: &Path, scripted: &Scripted) -> Server {
    Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![scripted.address.clone()],
        },
        report_interval: Duration::from_millis(50),
        ..config(Some(directory))
    })
    .unwrap()
}

#[test]
fn a_range_server_says_who_it_is_asks_what_is_its_and_tells_how_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let server = range_server(directory.path(), &scripted);
    let greeting = scripted.wait("a greeting", |known| {
        let mut greetings = known.greetings.iter();
        greetings.find(|greeting| greeting.range_server.is_some()).cloned()
    });
    assert_eq!(greeting.client_role, ClientRole::RANGE_SERVER);
    let me = greeting.range_server.unwrap();
    assert_eq!((me.server_id, me.advertise_addr.as_str()), (GIVEN, server.address()));
    scripted.wait("the list", |known| {
        known.calls.contains(&OpCode::LIST_RANGES).then_some(())
    });
    let report = scripted.wait("a report", |known| known.reports.get(1).cloned());
    assert_eq!(report.range_server.unwrap().server_id, GIVEN);
    assert!(report.memory_used > 1 << 20, "{}", report.memory_used);
    assert!(report.disk_free_space > 0, "{}", report.disk_free_space);
    drop(server);
    scripted.change(|known| known.greetings.clear());
    let _server = range_server(directory.path(), &scripted);
    scripted.wait("the same number again", |known| {
        let mut greetings = known
            .greetings
            .iter()
            .filter_map(|greeting| greeting.range_server.as_ref());
        greetings.any(|me| me.server_id == GIVEN).then_some(())
    });
    assert_eq!(scripted.count(OpCode::ALLOCATE_ID), 1, "it asks for a number once");
}

#[test]
fn every_placement_driver_of_a_cluster_hears_of_a_range_server() {
    let directory = tempfile::tempdir().unwrap();
    let [leader, follower, late] = [Scripted::start(), Scripted::start(), Scripted::start()];
    leader.change(|known| known.members = vec![leader.address.clone(), follower.address.clone()]);
    let server = range_server(directory.path(), &leader);
    let told = |scripted: &Scripted| {
        let greeting = scripted.wait("a greeting", |known| known.greetings.last().cloned());
        let report = scripted.wait("a report", |known| known.reports.last().cloned());
        let me = greeting.range_server.unwrap();
        assert_eq!((me.server_id, me.advertise_addr.as_str()), (GIVEN, server.address()));
        assert_eq!(me.starts, 1, "of its directory");
        assert_eq!(report.range_server, Some(RangeServer { starts: 0, ..me }));
    };
    told(&follower);
    // Who joins later is found, and who leaves is left alone.
    leader.change(|known| known.members = vec![leader.address.clone(), late.address.clone()]);
    told(&late);
    let heard = late.count(OpCode::HEARTBEAT);
    late.wait("a sign of life", |known| {
        let signs = known.calls.iter().filter(|call| **call == OpCode::HEARTBEAT);
        (signs.count() > heard).then_some(())
    });
}

#[test]
fn a_stream_that_is_not_here_is_asked_about_before_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let server = range_server(directory.path(), &scripted);
    let mut peer = Peer::connect(&server);
    let (known, unknown) = (StreamId(9), StreamId(10));
    assert_eq!(peer.append(unknown, b"x").status.code, ErrorCode::RANGE_NOT_FOUND);
    scripted.change(|state| {
        state.streams.insert(known, vec![range(known, 0, 0, GIVEN)]);
    });
    assert_eq!(peer.store(known, b"x"), 0);
    let asked = scripted.count(OpCode::DESCRIBE_STREAMS);
    assert_eq!(peer.store(known, b"y"), 1);
    assert_eq!(
        scripted.count(OpCode::DESCRIBE_STREAMS),
        asked,
        "what is known is not asked about"
    );
    assert_eq!(peer.append(unknown, b"x").status.code, ErrorCode::RANGE_NOT_FOUND);
}

#[test]
fn a_fetch_of_a_stream_that_is_not_here_waits_for_what_the_placement_driver_says() {
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let server = range_server(directory.path(), &scripted);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let (known, unknown) = (StreamId(9), StreamId(10));
    scripted.change(|state| {
        state.streams.insert(known, vec![range(known, 0, 0, GIVEN)]);
    });
    // Whether it may wait for records or not.
    for max_wait_ms in [0, 60_000] {
        let request = fetch_request(max_wait_ms, 1, &[from(unknown, 0)]);
        let (response, _): (FetchResponse, _) = reader.call(&request, b"");
        assert_eq!(response.fetch_responses[0].status.code, ErrorCode::RANGE_NOT_FOUND);
    }
    let call = reader.send(&fetch_request(60_000, 1, &[from(known, 0), from(unknown, 0)]), b"");
    let frame = reader.recv();
    assert_eq!((frame.call_id, frame.flags), (call, Flags::RESPONSE));
    let refused = FetchResponse::decode(&frame.header).unwrap();
    assert_eq!(refused.fetch_responses[0].request_index, 1);
    assert_eq!(writer.store(known, b"x"), 0);
    let frame = reader.recv();
    assert_eq!((frame.call_id, frame.flags), (call, Flags::RESPONSE | Flags::END));
    assert_eq!(bodies(&frame.payload.into_contiguous()), [(0, "x".into())]);
}

#[test]
fn a_sync_adds_ranges_and_raises_starts_durably_and_a_lower_epoch_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let server = range_server(directory.path(), &scripted);
    let stream = StreamId(9);
    let mut driver = Peer::connect(&server);
    let greeting = HeartbeatRequest {
        client_role: ClientRole::PLACEMENT_DRIVER,
        ..Default::default()
    };
    let _: (HeartbeatResponse, _) = driver.call(&greeting, b"");
    let sync = |driver: &mut Peer, ranges: Vec<Range>| {
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges,
            }],
            ..Default::default()
        };
        let (mut answer, _): (SyncRangesResponse, _) = driver.call(&request, b"");
        let result = answer.sync_responses.remove(0);
        let held = result
            .ranges
            .iter()
            .map(|range| (range.range_index.0, range.start_offset.0));
        (result.status.code, held.collect::<Vec<_>>())
    };
    assert_eq!(
        sync(&mut driver, vec![range(stream, 2, 0, GIVEN)]).0,
        ErrorCode::NOT_FOUND,
        "the placement driver does not know the stream when it is asked for its settings"
    );
    scripted.change(|known| {
        known.streams.insert(stream, vec![range(stream, 2, 0, GIVEN)]);
    });
    let elsewhere = range(stream, 3, 5, ServerId(8));
    assert_eq!(
        sync(&mut driver, vec![range(stream, 2, 0, GIVEN), elsewhere]),
        (ErrorCode::NONE, vec![(2, 0)]),
        "only what names this server"
    );
    for offset in 0..4 {
        assert_eq!(driver.store(stream, b"x"), offset);
    }
    scripted.change(|known| {
        known.streams.insert(stream, vec![range(stream, 2, 3, GIVEN)]);
    });
    assert_eq!(
        sync(&mut driver, vec![range(stream, 2, 3, GIVEN)]),
        (ErrorCode::NONE, vec![(2, 3)])
    );
    scripted.change(|known| {
        let older = Range {
            epoch: Some(Epoch(1)),
            ..range(stream, 2, 4, GIVEN)
        };
        known.streams.insert(stream, vec![older]);
    });
    assert_eq!(sync(&mut driver, Vec::new()).0, ErrorCode::EXPIRED_RANGE_EPOCH);
    drop((driver, server));
    let server = range_server(directory.path(), &scripted);
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.fetch_all(stream, 3).len(), 1, "start and records are as they were");
    assert_eq!(peer.store(stream, b"y"), 4);
}

#[test]
fn on_the_word_of_another_placement_driver_nothing_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let stream = StreamId(9);
    scripted.change(|known| {
        known.streams.insert(stream, vec![range(stream, 0, 0, GIVEN)]);
    });
    let server = range_server(directory.path(), &scripted);
    assert_eq!(Peer::connect(&server).store(stream, b"x"), 0);
    drop(server);
    // It knows nothing any more, and gives the same number again.
    scripted.change(|known| {
        known.streams.clear();
        known.calls.clear();
    });
    let server = range_server(directory.path(), &scripted);
    scripted.wait("the question for a number", |known| {
        known.calls.contains(&OpCode::ALLOCATE_ID).then_some(())
    });
    let asked = scripted.count(OpCode::LIST_RANGES);
    scripted.wait("another look", |known| {
        let looks = known.calls.iter().filter(|call| **call == OpCode::LIST_RANGES);
        (looks.count() > asked).then_some(())
    });
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.fetch_all(stream, 0).len(), 1);
    assert_eq!(peer.store(stream, b"y"), 1);
    // Where numbers have grown it is the right one. It does not know the stream, and has not said that it is deleted.
    scripted.change(|known| known.given = 1);
    let deadline = Instant::now() + PATIENCE;
    let mut stored = 2;
    while peer.append(stream, b"z").status.code != ErrorCode::NOT_FOUND {
        assert!(Instant::now() < deadline, "the stream is served");
        stored += 1;
    }
    drop((peer, server));
    scripted.change(|known| {
        known.streams.insert(stream, vec![range(stream, 0, 0, GIVEN)]);
    });
    let server = range_server(directory.path(), &scripted);
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.fetch_all(stream, 0).len(), stored, "all of it was kept");
    // The same without a start in between.
    scripted.change(|known| {
        known.streams.clear();
    });
    while peer.append(stream, b"z").status.code != ErrorCode::NOT_FOUND {
        assert!(Instant::now() < deadline, "the stream is served");
    }
    scripted.change(|known| {
        known.streams.insert(stream, vec![range(stream, 0, 0, GIVEN)]);
    });
    while peer.append(stream, b"z").status.code == ErrorCode::NOT_FOUND {
        assert!(Instant::now() < deadline, "the stream is not served");
    }
}

/// A placement driver that a scripted range server has registered with, over the connection that is returned.
pub(super) fn register(driver: &Server, scripted: &Scripted) -> (Peer, RangeServer) {
    register_with(driver, scripted, &[])
}

/// The same, with what it says that it can do.
pub(super) fn register_with(driver: &Server, scripted: &Scripted, can: &[&str]) -> (Peer, RangeServer) {
    let mut peer = Peer::connect(driver);
    let request = IdAllocationRequest {
        host: "here".to_owned(),
        ..Default::default()
    };
    let (answer, _): (IdAllocationResponse, _) = peer.call(&request, b"");
    let me = RangeServer {
        server_id: ServerId(answer.id),
        advertise_addr: scripted.address.clone(),
        ..RangeServer::default()
    };
    let greeting = HeartbeatRequest {
        client_role: ClientRole::RANGE_SERVER,
        range_server: Some(me.clone()),
        features: can.iter().map(|name| Feature::new(name, "1")).collect(),
        ..Default::default()
    };
    let _: (HeartbeatResponse, _) = peer.call(&greeting, b"");
    (peer, me)
}

fn report(peer: &mut Peer, me: &RangeServer, appends: i16, free: i64) {
    let request = ReportMetricsRequest {
        range_server: Some(me.clone()),
        disk_free_space: free,
        network_append_rate: appends,
        ..Default::default()
    };
    let (answer, _): (ReportMetricsResponse, _) = peer.call(&request, b"");
    assert!(answer.status.is_success());
    assert_eq!(answer.range_server.as_ref(), Some(me));
}

fn create(peer: &mut Peer) -> Result<Range, ErrorCode> {
    create_named(peer, "")
}

fn create_named(peer: &mut Peer, name: &str) -> Result<Range, ErrorCode> {
    let stream = Stream {
        name: name.to_owned(),
        ..Stream::default()
    };
    let request = CreateStreamsRequest {
        streams: vec![stream],
        ..Default::default()
    };
    let (mut answer, _): (CreateStreamsResponse, _) = peer.call(&request, b"");
    let result = answer.create_responses.remove(0);
    match result.status.is_success() {
        true => Ok(result.range.unwrap()),
        false => Err(result.status.code),
    }
}

/// A placement driver for range servers that say once that they are there.
pub(super) fn placement_driver(directory: &Path) -> Server {
    Server::start(ServerConfig {
        roles: Roles::PlacementDriver,
        cluster: ClusterTimes {
            silence: Duration::from_secs(3_600),
            ..ClusterTimes::default()
        },
        ..config(Some(directory))
    })
    .unwrap()
}

#[test]
fn figures_decide_where_a_new_stream_goes() {
    const ROOM: i64 = 100 << 30;
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let mut client = Peer::connect(&driver);
    assert_eq!(create(&mut client), Err(ErrorCode::PD_NO_AVAILABLE_RS), "there is none");
    let scripted = [Scripted::start(), Scripted::start()];
    let [(mut a, name_a), (mut b, name_b)] = scripted.each_ref().map(|scripted| register(&driver, scripted));
    assert_ne!(name_a.server_id, name_b.server_id);
    let all_on = |client: &mut Peer, name: &RangeServer, why: &str| {
        for _stream in 0..8 {
            let range = create(client).unwrap();
            assert_eq!(range.primary(), Some(name), "{why}");
        }
    };
    report(&mut a, &name_a, 10_000, ROOM);
    report(&mut b, &name_b, 0, ROOM);
    all_on(&mut client, &name_b, "the other one is busy");
    report(&mut a, &name_a, 0, ROOM);
    report(&mut b, &name_b, 0, 0);
    all_on(&mut client, &name_a, "the other one has no room");
    let told = scripted[0].known.0.lock().unwrap().synced.len();
    assert_eq!(told, 8, "each range was told to its server before the stream was shown");
    scripted[0].end();
    drop(a);
    report(&mut b, &name_b, 0, 0);
    let deadline = Instant::now() + PATIENCE;
    while create(&mut client).unwrap().primary() != Some(&name_b) {
        assert!(
            Instant::now() < deadline,
            "a server whose connection is gone still gets streams"
        );
    }
}

#[test]
fn a_range_server_that_does_not_answer_is_told_as_such_and_holds_nobody_else_up() {
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let scripted = Scripted::start();
    let _registered = register(&driver, &scripted);
    let mut waiting = Peer::connect(&driver);
    let range = create(&mut waiting).unwrap();
    scripted.change(|known| known.silent = true);
    let request = SealRangesRequest {
        ranges: vec![RangeId {
            stream_id: range.stream_id,
            range_index: Some(range.range_index),
            ..RangeId::default()
        }],
        ..Default::default()
    };
    let call = waiting.send(&request, b"");
    scripted.wait("the seal", |known| {
        known.calls.contains(&OpCode::SEAL_RANGES).then_some(())
    });
    let request = DescribeStreamsRequest::default();
    let (answer, _): (DescribeStreamsResponse, _) = Peer::connect(&driver).call(&request, b"");
    assert!(answer.status.is_success());
    let frame = waiting.recv();
    assert_eq!(frame.call_id, call);
    let answer = SealRangesResponse::decode(&frame.header).unwrap();
    let status = &answer.seal_responses[0].status;
    assert_eq!(status.code, ErrorCode::PD_NO_AVAILABLE_RS);
    assert!(status.message.contains(&scripted.address), "{status}");
}

#[test]
fn where_a_stream_is_is_told_without_asking_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let scripted = Scripted::start();
    let _registered = register(&driver, &scripted);
    let mut client = Peer::connect(&driver);
    let made = create_named(&mut client, "s").unwrap();
    assert_eq!((made.start_offset, made.next_offset), (Offset(0), Offset(0)));
    let stream = made.stream_id;
    let found = [create_named(&mut client, "s").unwrap(), client.ranges(stream).remove(0)];
    assert!(found.iter().all(|found| *found == made), "{found:?}");
    assert_eq!(scripted.count(OpCode::DESCRIBE_RANGES), 0);
    assert_eq!(client.describe_range(stream, -1).unwrap(), made);
    assert_eq!(scripted.count(OpCode::DESCRIBE_RANGES), 1, "it may have grown");
}

#[test]
fn a_range_that_is_sealed_while_it_is_described_is_told_with_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let scripted = Scripted::start();
    let (server, _) = register(&driver, &scripted);
    let made = create_named(&mut Peer::connect(&driver), "s").unwrap();
    let stream = made.stream_id;
    scripted.change(|known| known.silent_about = Some(OpCode::DESCRIBE_RANGES));
    let mut asking = Peer::connect(&driver);
    let request = DescribeRangesRequest {
        ranges: vec![range_id(stream, 0)],
        ..Default::default()
    };
    let call = asking.send(&request, b"");
    scripted.wait("the question", |known| {
        known.calls.contains(&OpCode::DESCRIBE_RANGES).then_some(())
    });
    let next = try_seal(&mut Peer::connect(&driver), stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!(next.start_offset, Offset(3));
    // The question ends when the server that was asked is gone.
    scripted.end();
    drop(server);
    let frame = asking.recv();
    assert_eq!(frame.call_id, call);
    let answer = DescribeRangesResponse::decode(&frame.header).unwrap();
    let range = answer.describe_responses[0].range.as_ref();
    assert_eq!(range.map(bounds), Some((0, 0, 3, 3)), "{answer:?}");
}

#[test]
fn a_range_server_whose_address_nobody_should_dial_is_not_registered() {
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let scripted = Scripted::start();
    let (_, port) = scripted.address.rsplit_once(':').unwrap();
    let (peer, me) = register(&driver, &scripted);
    scripted.end();
    drop(peer);
    // Its connection is gone, and so is it; all of these lead to it, or to what a server should not be led to.
    for odd in [
        &format!("0.0.0.0:{port}"),
        &format!("[::ffff:0.0.0.0]:{port}"),
        "127.0.0.1",
        "127.0.0.1:0",
        "169.254.169.254:80",
        "file:///etc/passwd",
        "../metadata.redb:1",
        "127.0.0.1:1\u{1b}[2J",
        driver.address(),
    ] {
        let mut peer = Peer::connect(&driver);
        let greeting = HeartbeatRequest {
            client_id: "odd".to_owned(),
            client_role: ClientRole::RANGE_SERVER,
            range_server: Some(RangeServer {
                advertise_addr: odd.to_owned(),
                ..me.clone()
            }),
            ..Default::default()
        };
        let (answer, _): (HeartbeatResponse, _) = peer.call(&greeting, b"");
        assert_eq!(answer.status.code, ErrorCode::INVALID_REQUEST, "{odd:?}");
        assert_eq!(
            (answer.client_id.as_str(), answer.connection_id),
            ("odd", 0),
            "nothing was agreed"
        );
        assert!(!answer.status.message.contains('\u{1b}'), "{:?}", answer.status.message);
        let deadline = Instant::now() + PATIENCE;
        // As soon as the first connection's end is noticed there is no range server, whoever else says that there is.
        while create(&mut peer).is_ok() {
            assert!(Instant::now() < deadline, "{odd:?} was registered");
        }
        assert_eq!(create(&mut peer), Err(ErrorCode::PD_NO_AVAILABLE_RS), "{odd:?}");
    }
    let mut peer = Peer::connect(&driver);
    let unknown = ReportMetricsRequest {
        range_server: Some(RangeServer {
            server_id: ServerId(i32::MAX),
            advertise_addr: scripted.address.clone(),
            ..RangeServer::default()
        }),
        ..Default::default()
    };
    let (answer, _): (ReportMetricsResponse, _) = peer.call(&unknown, b"");
    assert_eq!(
        answer.status.code,
        ErrorCode::INVALID_REQUEST,
        "a number that was never given"
    );
}
