//! The table of operations and grants, row by row: without the grant an operation is forbidden, with it it is not; a
//! stream of somebody else is answered like one that does not exist.

use sbp_e2e::access::{Names, hello};
use sbp_e2e::admin::{of_stream, on_server, range_id};
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_frame::{Flags, OpCode};
use sbp_messages::{
    AppendResponse, ClientRole, CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest, CreateStreamsResponse,
    DeleteStreamsRequest, DeleteStreamsResponse, DescribePlacementDriverClusterRequest,
    DescribePlacementDriverClusterResponse, DescribeRangesRequest, DescribeRangesResponse, DescribeStreamsRequest,
    DescribeStreamsResponse, ErrorCode, FetchResponse, IdAllocationRequest, IdAllocationResponse, ListRangesRequest,
    ListRangesResponse, Message, RangeCriteria, ReportMetricsRequest, ReportMetricsResponse, SealKind,
    SealRangesRequest, SealRangesResponse, ServerState, Status, Stream, SyncRangesRequest, SyncRangesResponse,
    SystemErrorResponse, Token, TrimStreamsRequest, TrimStreamsResponse, TrimmedStream, UpdateStreamsRequest,
    UpdateStreamsResponse,
};
use sbp_server::access::{OperationRow, Right, Subject, operations};
use sbp_types::{Offset, RangeIndex, StreamId};

/// How a request ended: its system error, or the status that `of` finds in its answer.
fn ended<Q: Message, A: Message>(peer: &mut Peer, request: &Q, payload: &[u8], of: impl FnOnce(A) -> Status) -> Status {
    let call = peer.send(request, payload);
    let frame = peer.recv();
    assert_eq!(frame.call_id, call);
    if frame.flags.contains(Flags::SYSTEM_ERROR) {
        SystemErrorResponse::decode(&frame.header).unwrap().status
    } else {
        of(A::decode(&frame.header).unwrap())
    }
}

/// Asks for what a row of the table is about, and returns how that ended. `name` is the stream's, or a new one.
fn ask(peer: &mut Peer, row: &OperationRow, token: &Token, stream: StreamId, name: &str) -> Status {
    let about = |name: &str| Stream {
        stream_id: stream,
        name: name.to_owned(),
        ..Stream::default()
    };
    match (row.opcode, row.subject) {
        (OpCode::HEARTBEAT, Subject::Request) => hello(peer, token, ClientRole::CLIENT).status,
        (OpCode::HEARTBEAT, _) => hello(peer, token, ClientRole::RANGE_SERVER).status,
        (OpCode::ALLOCATE_ID, _) => {
            let request = IdAllocationRequest {
                host: "127.0.0.1:1".to_owned(),
                ..Default::default()
            };
            ended(peer, &request, b"", |answer: IdAllocationResponse| answer.status)
        }
        (OpCode::APPEND, _) => {
            let batch = raw_batch(b"x");
            let request = append_request(&[(stream, batch.len())]);
            ended(peer, &request, &batch, |mut answer: AppendResponse| {
                answer.append_responses.remove(0).status
            })
        }
        (OpCode::FETCH, _) => {
            let request = fetch_request(0, 0, &[from(stream, 0)]);
            ended(peer, &request, b"", |mut answer: FetchResponse| {
                answer.fetch_responses.remove(0).status
            })
        }
        (OpCode::LIST_RANGES | OpCode::SEAL_RANGES | OpCode::SYNC_RANGES, _)
        | (OpCode::CREATE_RANGE | OpCode::DESCRIBE_RANGES, _) => ask_about_ranges(peer, row, stream),
        _ => ask_about_streams(peer, row, about(name)),
    }
}

fn ask_about_ranges(peer: &mut Peer, row: &OperationRow, stream: StreamId) -> Status {
    match (row.opcode, row.subject) {
        (OpCode::LIST_RANGES, subject) => {
            let criterion = match subject {
                Subject::Stream => of_stream(stream),
                _ => RangeCriteria {
                    range_server: Some(on_server(1)),
                    ..RangeCriteria::default()
                },
            };
            let request = ListRangesRequest {
                range_criteria: vec![criterion],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: ListRangesResponse| {
                answer.list_responses.remove(0).status
            })
        }
        (OpCode::SEAL_RANGES, subject) => {
            let request = SealRangesRequest {
                ranges: vec![range_id(stream, 0)],
                kind: SealKind::PLACEMENT_DRIVER,
                force: subject == Subject::Forced,
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: SealRangesResponse| {
                answer.seal_responses.remove(0).status
            })
        }
        (OpCode::SYNC_RANGES, _) => ended(
            peer,
            &SyncRangesRequest::default(),
            b"",
            |answer: SyncRangesResponse| answer.status,
        ),
        (OpCode::CREATE_RANGE, _) => {
            let range = sbp_messages::Range {
                stream_id: stream,
                range_index: RangeIndex(1),
                ..Default::default()
            };
            let request = CreateRangeRequest {
                range: Some(range),
                ..Default::default()
            };
            ended(peer, &request, b"", |answer: CreateRangeResponse| answer.status)
        }
        (OpCode::DESCRIBE_RANGES, _) => {
            let request = DescribeRangesRequest {
                ranges: vec![range_id(stream, 0)],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: DescribeRangesResponse| {
                answer.describe_responses.remove(0).status
            })
        }
        (opcode, subject) => panic!("{opcode} about {subject:?} is in the table and not tested"),
    }
}

fn ask_about_streams(peer: &mut Peer, row: &OperationRow, stream: Stream) -> Status {
    let unnamed = |stream: &Stream| Stream {
        name: String::new(),
        ..stream.clone()
    };
    match (row.opcode, row.subject) {
        (OpCode::CREATE_STREAMS, _) => {
            let request = CreateStreamsRequest {
                streams: vec![Stream {
                    stream_id: StreamId(-1),
                    name: format!("{}/new", stream.name),
                    ..Stream::default()
                }],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: CreateStreamsResponse| {
                answer.create_responses.remove(0).status
            })
        }
        (OpCode::DELETE_STREAMS, _) => {
            let request = DeleteStreamsRequest {
                streams: vec![unnamed(&stream)],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: DeleteStreamsResponse| {
                answer.delete_responses.remove(0).status
            })
        }
        (OpCode::UPDATE_STREAMS, subject) => {
            let wanted = match subject {
                Subject::NewName => Stream {
                    name: format!("{}/new", stream.name),
                    ..stream
                },
                _ => unnamed(&stream),
            };
            let request = UpdateStreamsRequest {
                streams: vec![wanted],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: UpdateStreamsResponse| {
                answer.update_responses.remove(0).status
            })
        }
        (OpCode::TRIM_STREAMS, _) => {
            let request = TrimStreamsRequest {
                trimmed_streams: vec![TrimmedStream {
                    stream_id: stream.stream_id,
                    trim_offset: Offset(0),
                }],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: TrimStreamsResponse| {
                answer.trim_responses.remove(0).status
            })
        }
        _ => ask_for_all(peer, row, &stream),
    }
}

fn ask_for_all(peer: &mut Peer, row: &OperationRow, stream: &Stream) -> Status {
    match (row.opcode, row.subject) {
        (OpCode::DESCRIBE_STREAMS, Subject::Stream) => {
            let request = DescribeStreamsRequest {
                stream_ids: vec![stream.stream_id],
                ..Default::default()
            };
            ended(peer, &request, b"", |mut answer: DescribeStreamsResponse| {
                answer.describe_responses.remove(0).status
            })
        }
        // A stream that is not listed is what a forbidden one is elsewhere.
        (OpCode::DESCRIBE_STREAMS, _) => ended(
            peer,
            &DescribeStreamsRequest::default(),
            b"",
            |answer: DescribeStreamsResponse| {
                let mut listed = answer.describe_responses.iter().filter_map(|one| one.stream.as_ref());
                match listed.any(|listed| listed.stream_id == stream.stream_id) {
                    true => Status::success(),
                    false => Status::error(ErrorCode::FORBIDDEN, "not listed"),
                }
            },
        ),
        (OpCode::REPORT_METRICS, _) => ended(
            peer,
            &ReportMetricsRequest {
                range_server: Some(on_server(1)),
                wanted: match row.subject {
                    Subject::Cluster => ServerState::DRAINING,
                    _ => ServerState::UNSPECIFIED,
                },
                ..ReportMetricsRequest::default()
            },
            b"",
            |answer: ReportMetricsResponse| answer.status,
        ),
        (OpCode::DESCRIBE_PD_CLUSTER, _) => ended(
            peer,
            &DescribePlacementDriverClusterRequest::default(),
            b"",
            |answer: DescribePlacementDriverClusterResponse| answer.status,
        ),
        (opcode, subject) => panic!("{opcode} about {subject:?} is in the table and not tested"),
    }
}

/// The grant of a right, on a stream and those below it, or on everything.
fn grant(right: Right, on: &str) -> String {
    match right {
        Right::Server => "server".to_owned(),
        right => format!("{}:{on}*", right.word()),
    }
}

/// Whether there is a right, beside these, with which one sees a stream.
fn others_see(rights: &[Right]) -> bool {
    [Right::Read, Right::Write, Right::Admin, Right::Server]
        .iter()
        .any(|right| !rights.contains(right))
}

#[test]
fn each_operation_needs_what_its_row_says() {
    let names = Names::default();
    let root = names.add("root", &["admin:*"]);
    let mut streams = 0;
    let server = names.serve();
    // Those who are added while it runs are known within a second or so.
    let connect = |token: &Token| {
        sbp_e2e::wait::until("a new name", || {
            let mut peer = Peer::connect(&server);
            let status = hello(&mut peer, token, ClientRole::CLIENT).status;
            status.is_success().then_some(peer)
        })
    };
    let rights = [Right::Read, Right::Write, Right::Admin, Right::Server];
    let mut cases = Vec::new();
    for (place, row) in operations().into_iter().enumerate() {
        let on_stream = matches!(row.subject, Subject::Stream | Subject::NewName);
        let mut root_s = connect(&root);
        let mut fresh = |what: &str| {
            streams += 1;
            let name = format!("s{streams}/{what}");
            (root_s.create(&name), name)
        };
        // All but the rights of the row, on everything.
        let others = rights.iter().filter(|right| !row.rights.contains(right));
        let others: Vec<_> = others.map(|right| grant(*right, "")).collect();
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        let lacking = names.add(&format!("lacking{place}"), &others);
        let nobody = names.add(&format!("nobody{place}"), &["read:elsewhere"]);
        let (stream, name) = fresh("lacking");
        let mut having = Vec::new();
        for right in &row.rights {
            let (stream, name) = fresh(right.word());
            let on = if on_stream || row.opcode == OpCode::DESCRIBE_STREAMS {
                name.as_str()
            } else {
                ""
            };
            let token = names.add(&format!("having{place}"), &[&grant(*right, on)]);
            having.push((token, stream, name));
        }
        cases.push((row, lacking, nobody, stream, name, having));
    }
    for (row, lacking, nobody, stream, name, having) in cases {
        let what = format!("{} about {:?}", row.opcode, row.subject);
        let mut peer = connect(&lacking);
        let refused = ask(&mut peer, &row, &lacking, stream, &name);
        if row.rights.is_empty() {
            assert!(refused.is_success(), "{what}: {refused}");
            continue;
        }
        assert_eq!(refused.code, ErrorCode::FORBIDDEN, "{what}: {refused}");
        if row.subject == Subject::Stream {
            // Who has another right on the stream is told by its name what is missing, ...
            if others_see(&row.rights) {
                // A reader is not told of the right of a server.
                let reads = row.rights.contains(&Right::Read);
                let told = row.rights.iter().filter(|right| !reads || **right != Right::Server);
                let missing: Vec<_> = told.map(|right| grant(*right, &name)).collect();
                let missing = format!("the grant {};", missing.join(" or ").replace('*', ""));
                assert!(refused.message.contains(&missing), "{what}: {refused}");
            }
            // ... and who has none not even whether there is such a stream.
            let mut peer = connect(&nobody);
            let refused = ask(&mut peer, &row, &nobody, stream, &name);
            assert_eq!(refused.code, ErrorCode::FORBIDDEN, "{what}: {refused}");
            let unknown = StreamId(1_000_000);
            let alike = ask(&mut peer, &row, &nobody, unknown, &name);
            let text = |status: &Status, id: StreamId| status.message.replace(&format!("stream {id}"), "stream N");
            assert_eq!(
                (alike.code, text(&alike, unknown)),
                (refused.code, text(&refused, stream)),
                "{what}"
            );
            assert!(!refused.message.contains(&name), "{what}: {refused}");
        }
        for (token, stream, name) in having {
            let mut peer = connect(&token);
            let allowed = ask(&mut peer, &row, &token, stream, &name);
            assert_ne!(allowed.code, ErrorCode::FORBIDDEN, "{what}: {allowed}");
        }
    }
}

/// Every operation of the table but HEARTBEAT is refused to who has not said who it is.
#[test]
fn nothing_is_served_to_a_stranger() {
    let names = Names::default();
    let server = names.serve();
    for row in operations() {
        let mut peer = Peer::connect(&server);
        let refused = ask(&mut peer, &row, &Token::default(), StreamId(1), "x");
        assert_eq!(refused.code, ErrorCode::UNAUTHORIZED, "{}: {refused}", row.opcode);
    }
}

/// The page says what the code does.
#[test]
fn the_page_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/access.md");
    let page = std::fs::read_to_string(path).unwrap();
    let test = "[`each_operation_needs_what_its_row_says`](../../tests/e2e/server/access_table.rs)";
    let mut table = String::from("| operation | about | needs | test |\n| --- | --- | --- | --- |\n");
    for row in operations() {
        let words: Vec<_> = row.rights.iter().map(|right| format!("`{}`", right.word())).collect();
        let needs = if words.is_empty() {
            "to be known".to_owned()
        } else {
            words.join(" or ")
        };
        table.push_str(&format!(
            "| {} | {} | {needs} | {test} |\n",
            row.opcode.name().unwrap(),
            row.subject.words()
        ));
    }
    assert!(
        page.contains(&table),
        "docs/operate/access.md lacks this table:\n{table}"
    );
}
