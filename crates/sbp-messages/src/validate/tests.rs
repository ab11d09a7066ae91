use std::time::Duration;

use sbp_types::{Epoch, Offset, Position, RangeIndex, ServerId, StreamId, TimestampMs};

use super::{MAX_ENTRIES, is_valid_stream_name, requested_timeout, throttle_time};
use crate::*;

fn append(lengths: &[i32]) -> AppendRequest {
    let entry = |(index, length): (usize, &i32)| AppendInfo {
        stream_id: StreamId(1),
        request_index: i32::try_from(index).expect("few entries"),
        batch_length: *length,
        ..AppendInfo::default()
    };
    AppendRequest {
        timeout_ms: 0,
        append_requests: lengths.iter().enumerate().map(entry).collect(),
    }
}

fn fetch(entries: usize) -> FetchRequest {
    let entry = |index| FetchInfo {
        stream_id: StreamId(1),
        request_index: i32::try_from(index).expect("few entries"),
        ..FetchInfo::default()
    };
    FetchRequest {
        fetch_requests: (0..entries).map(entry).collect(),
        ..FetchRequest::default()
    }
}

#[test]
fn a_sound_append_passes_whatever_the_order_of_its_indices() {
    assert_eq!(append(&[10, 0, 6]).validate(16), Ok(()));
    let mut request = append(&vec![1; MAX_ENTRIES]);
    request.append_requests.reverse();
    assert_eq!(request.validate(MAX_ENTRIES), Ok(()));
}

#[test]
fn no_entries_and_too_many_are_refused() {
    assert_eq!(
        append(&[]).validate(0),
        Err(Refusal::Missing {
            field: "append_requests"
        })
    );
    assert_eq!(
        fetch(0).validate(),
        Err(Refusal::Missing {
            field: "fetch_requests"
        })
    );
    assert_eq!(
        ListRangesRequest::default().validate(),
        Err(Refusal::Missing {
            field: "range_criteria"
        })
    );
    assert_eq!(
        DescribeRangesRequest::default().validate(),
        Err(Refusal::Missing { field: "ranges" })
    );
    assert_eq!(
        CreateStreamsRequest::default().validate(),
        Err(Refusal::Missing { field: "streams" })
    );

    assert_eq!(
        SealRangesRequest::default().validate(),
        Err(Refusal::Missing { field: "ranges" })
    );
    assert_eq!(
        SyncRangesRequest::default().validate(),
        Err(Refusal::Missing { field: "stream_ranges" })
    );
    assert_eq!(
        DeleteStreamsRequest::default().validate(),
        Err(Refusal::Missing { field: "streams" })
    );
    assert_eq!(
        UpdateStreamsRequest::default().validate(),
        Err(Refusal::Missing { field: "streams" })
    );
    assert_eq!(
        TrimStreamsRequest::default().validate(),
        Err(Refusal::Missing {
            field: "trimmed_streams"
        })
    );
    assert_eq!(
        CreateRangeRequest::default().validate(),
        Err(Refusal::Missing { field: "range" })
    );
    assert_eq!(
        IdAllocationRequest::default().validate(),
        Err(Refusal::Missing { field: "host" })
    );

    let too_many = Err(Refusal::TooManyEntries {
        count: MAX_ENTRIES + 1,
        limit: MAX_ENTRIES,
    });
    assert_eq!(append(&[0; MAX_ENTRIES + 1]).validate(0), too_many);
    assert_eq!(fetch(MAX_ENTRIES + 1).validate(), too_many);
    let ids_and_names = DescribeStreamsRequest {
        stream_ids: vec![StreamId(1); MAX_ENTRIES],
        names: vec![String::from("a")],
        ..DescribeStreamsRequest::default()
    };
    assert_eq!(ids_and_names.validate(), too_many);
}

#[test]
fn indices_outside_the_request_or_twice_are_refused() {
    for index in [-1, 2, i32::MIN, i32::MAX] {
        let mut request = append(&[0, 0]);
        request.append_requests[1].request_index = index;
        assert_eq!(request.validate(0), Err(Refusal::IndexOutOfRange { index, entries: 2 }));
    }
    let mut request = fetch(MAX_ENTRIES);
    request.fetch_requests[70].request_index = 1_000;
    assert_eq!(request.validate(), Err(Refusal::IndexTwice { index: 1_000 }));
}

#[test]
fn lengths_must_add_up_without_wrapping() {
    assert_eq!(
        append(&[10]).validate(11),
        Err(Refusal::LengthMismatch { sum: 10, payload: 11 })
    );
    assert_eq!(
        append(&[-1, 1]).validate(0),
        Err(Refusal::OutOfRange {
            field: "batch_length",
            value: -1
        })
    );
    let sum = 4 * u64::from(i32::MAX.unsigned_abs());
    assert_eq!(
        append(&[i32::MAX; 4]).validate(0),
        Err(Refusal::LengthMismatch { sum, payload: 0 })
    );

    let result = FetchResult {
        batch_length: 3,
        ..FetchResult::default()
    };
    let response = FetchResponse {
        fetch_responses: [result.clone(), result].into_iter().collect(),
        ..Default::default()
    };
    assert_eq!(response.validate(6), Ok(()));
    assert_eq!(
        response.validate(5),
        Err(Refusal::LengthMismatch { sum: 6, payload: 5 })
    );
    let mut negative = response;
    negative.fetch_responses[0].record_count = -1;
    assert_eq!(
        negative.validate(6),
        Err(Refusal::OutOfRange {
            field: "record_count",
            value: -1
        })
    );
}

#[test]
fn impossible_numbers_are_refused_and_the_last_possible_ones_pass() {
    let mut request = append(&[0]);
    request.append_requests[0].expected_offset = None;
    assert_eq!(request.validate(0), Ok(()));
    request.append_requests[0].expected_offset = Some(Offset(-2));
    assert_eq!(
        request.validate(0),
        Err(Refusal::OutOfRange {
            field: "expected_offset",
            value: -2
        })
    );

    let mut request = fetch(1);
    request.fetch_requests[0].fetch_offset = Offset::EARLIEST;
    request.fetch_requests[0].batch_max_bytes = FetchInfo::POSITIONS_ONLY;
    assert_eq!(request.validate(), Ok(()));
    let broken = |change: &dyn Fn(&mut FetchRequest)| {
        let mut request = fetch(1);
        change(&mut request);
        request.validate()
    };
    assert_eq!(
        broken(&|r| r.fetch_requests[0].fetch_offset = Offset(-3)),
        Err(Refusal::OutOfRange {
            field: "fetch_offset",
            value: -3
        })
    );
    assert_eq!(
        broken(&|r| r.fetch_requests[0].batch_max_bytes = -2),
        Err(Refusal::OutOfRange {
            field: "batch_max_bytes",
            value: -2
        })
    );
    assert_eq!(
        broken(&|r| r.min_bytes = -1),
        Err(Refusal::OutOfRange {
            field: "min_bytes",
            value: -1
        })
    );
    assert_eq!(
        broken(&|r| r.max_bytes = -1),
        Err(Refusal::OutOfRange {
            field: "max_bytes",
            value: -1
        })
    );

    assert_eq!(FetchRequest::withdrawal(7).validate(), Ok(()), "it needs no entries");
    for value in [-7, 7] {
        assert_eq!(
            broken(&|r| r.withdraw = value),
            Err(Refusal::OutOfRange {
                field: "withdraw",
                value: value.into()
            }),
            "no number, or a number beside entries"
        );
    }

    let listing = ListRangesRequest {
        range_criteria: vec![RangeCriteria::default()],
        limit: -1,
        ..Default::default()
    };
    assert_eq!(
        listing.validate(),
        Err(Refusal::OutOfRange {
            field: "limit",
            value: -1
        })
    );
    let mut streams = DescribeStreamsRequest {
        limit: -1,
        ..Default::default()
    };
    assert_eq!(
        streams.validate(),
        Err(Refusal::OutOfRange {
            field: "limit",
            value: -1
        })
    );
    streams.stream_ids.push(StreamId(-7));
    assert_eq!(streams.validate(), Ok(()), "the limit counts in a list only");
}

#[test]
fn a_refusal_is_an_invalid_request_and_says_why() {
    let status = DecodeError::from(Refusal::IndexTwice { index: 3 }).to_status();
    assert_eq!(status.code, ErrorCode::INVALID_REQUEST);
    assert_eq!(status.message, "request_index 3 occurs twice");
}

#[test]
fn an_entry_that_names_nothing_has_a_fault_of_its_own() {
    let code = |status: Option<Status>| status.map(|status| status.code);
    let sound = AppendInfo {
        stream_id: StreamId(1),
        ..AppendInfo::default()
    };
    assert_eq!(sound.fault(), None);
    assert_eq!(
        code(
            AppendInfo {
                stream_id: StreamId(0),
                ..sound
            }
            .fault()
        ),
        Some(ErrorCode::NOT_FOUND)
    );
    assert_eq!(
        code(
            AppendInfo {
                range_index: Some(RangeIndex(-2)),
                ..sound
            }
            .fault()
        ),
        Some(ErrorCode::INVALID_REQUEST)
    );
    assert_eq!(
        code(
            AppendInfo {
                epoch: Some(Epoch(-2)),
                ..sound
            }
            .fault()
        ),
        Some(ErrorCode::INVALID_REQUEST)
    );

    let sound = FetchInfo {
        stream_id: StreamId(1),
        ..FetchInfo::default()
    };
    assert_eq!(sound.fault(), None);
    assert_eq!(code(FetchInfo::default().fault()), Some(ErrorCode::NOT_FOUND));
    assert_eq!(
        code(
            FetchInfo {
                end_offset: Some(Offset(-2)),
                ..sound
            }
            .fault()
        ),
        Some(ErrorCode::INVALID_REQUEST)
    );
    let early = FetchInfo {
        start_timestamp_ms: Some(TimestampMs(i64::MIN)),
        ..sound
    };
    assert_eq!(code(early.fault()), Some(ErrorCode::INVALID_REQUEST));

    assert_eq!(
        RangeId {
            stream_id: StreamId(5),
            ..RangeId::default()
        }
        .fault(),
        None
    );
    assert_eq!(code(RangeId::default().fault()), Some(ErrorCode::NOT_FOUND));

    let trimmed = TrimmedStream {
        stream_id: StreamId(1),
        trim_offset: Offset(-1),
    };
    assert_eq!(code(trimmed.fault()), Some(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS));
    assert_eq!(
        TrimmedStream {
            trim_offset: Offset(0),
            ..trimmed
        }
        .fault(),
        None
    );

    assert_eq!(code(RangeCriteria::default().fault()), Some(ErrorCode::INVALID_REQUEST));
    assert_eq!(
        RangeCriteria {
            stream_id: Some(StreamId(1)),
            range_server: None
        }
        .fault(),
        None
    );
    assert_eq!(
        RangeCriteria {
            range_server: Some(RangeServer::default()),
            ..Default::default()
        }
        .fault(),
        None
    );
    assert_eq!(
        code(
            RangeCriteria {
                stream_id: Some(StreamId(0)),
                range_server: None
            }
            .fault()
        ),
        Some(ErrorCode::NOT_FOUND)
    );
}

#[test]
fn settings_of_a_stream_are_judged_one_by_one() {
    assert_eq!(Stream::default().fault(), None);
    assert_eq!(
        Stream {
            replica_nums: 3,
            ack_count: 3,
            retention_bytes: -1,
            ..Stream::default()
        }
        .fault(),
        None
    );
    let faults = [
        Stream {
            name: String::from("9lives"),
            ..Stream::default()
        },
        Stream {
            replica_nums: -1,
            ..Stream::default()
        },
        Stream {
            ack_count: -1,
            ..Stream::default()
        },
        Stream {
            replica_nums: 1,
            ack_count: 2,
            ..Stream::default()
        },
        Stream {
            retention_period_ms: -1,
            ..Stream::default()
        },
        Stream {
            retention_bytes: -2,
            ..Stream::default()
        },
    ];
    for stream in faults {
        assert_eq!(
            stream.fault().map(|status| status.code),
            Some(ErrorCode::INVALID_REQUEST),
            "{stream:?}"
        );
    }
}

#[test]
fn names_follow_their_pattern() {
    for name in ["a", "_", "flights/UA", "A.b-c_d/9", &format!("x{}", "0".repeat(254))] {
        assert!(is_valid_stream_name(name), "{name}");
    }
    for name in [
        "",
        "7",
        "-a",
        "/a",
        ".a",
        "a b",
        "a\n",
        "é",
        "aé",
        &format!("x{}", "0".repeat(255)),
    ] {
        assert!(!is_valid_stream_name(name), "{name}");
    }
}

#[test]
fn times_are_clamped() {
    let wait = |max_wait_ms| {
        FetchRequest {
            max_wait_ms,
            ..FetchRequest::default()
        }
        .max_wait()
    };
    assert_eq!(wait(i32::MIN), Duration::ZERO);
    assert_eq!(wait(10), Duration::from_millis(10));
    assert_eq!(wait(i32::MAX), Duration::from_secs(60));
    assert_eq!(requested_timeout(0), None);
    assert_eq!(requested_timeout(-5), None);
    assert_eq!(requested_timeout(5), Some(Duration::from_millis(5)));
    assert_eq!(throttle_time(-1), Duration::ZERO);
    assert_eq!(throttle_time(i32::MAX), Duration::from_secs(30));
}

#[test]
fn values_outside_their_enum_are_refused() {
    for role in i8::MIN..=i8::MAX {
        let request = HeartbeatRequest {
            client_role: ClientRole(role),
            ..HeartbeatRequest::default()
        };
        assert_eq!(request.validate().is_ok(), (0..=3).contains(&role), "role {role}");
    }
    for kind in i8::MIN..=i8::MAX {
        let request = SealRangesRequest {
            ranges: vec![RangeId::default()],
            kind: SealKind(kind),
            ..SealRangesRequest::default()
        };
        assert_eq!(request.validate().is_ok(), (0..=2).contains(&kind), "kind {kind}");
    }
}

#[test]
fn what_servers_tell_each_other_has_faults_of_its_own() {
    let sound = AppendInfo {
        stream_id: StreamId(1),
        entry: ReplicaEntry::BATCH,
        append_time_ms: TimestampMs(7),
        confirmed: Some(Position::start(Offset(0))),
        sealed_end: Some(Position::start(Offset(9))),
        marks: 3,
        ..AppendInfo::default()
    };
    assert_eq!(sound.fault(), None);
    let at = |offset: i64, marks: u32| {
        let offset = Offset(offset);
        Some(Position { offset, marks })
    };
    let faulty = [
        (
            "entry is 4",
            AppendInfo {
                entry: ReplicaEntry(4),
                ..sound
            },
        ),
        (
            "entry is -1",
            AppendInfo {
                entry: ReplicaEntry(-1),
                ..sound
            },
        ),
        (
            "append_time_ms is -1",
            AppendInfo {
                append_time_ms: TimestampMs(-1),
                ..sound
            },
        ),
        (
            "marks is -1",
            AppendInfo {
                marks: u32::MAX,
                ..sound
            },
        ),
        (
            "confirmed_offset is -2",
            AppendInfo {
                confirmed: at(-2, 0),
                ..sound
            },
        ),
        (
            "confirmed_marks is -2147483648",
            AppendInfo {
                confirmed: at(5, 1 << 31),
                ..sound
            },
        ),
        (
            "sealed_end is -7",
            AppendInfo {
                sealed_end: at(-7, 0),
                ..sound
            },
        ),
        (
            "sealed_marks is -1",
            AppendInfo {
                sealed_end: at(7, u32::MAX),
                ..sound
            },
        ),
        (
            "marks is -1",
            AppendInfo {
                stream_id: StreamId(1),
                marks: u32::MAX,
                ..AppendInfo::default()
            },
        ),
    ];
    for (message, entry) in faulty {
        let fault = entry.fault().expect(message);
        assert_eq!(fault.code, ErrorCode::INVALID_REQUEST);
        assert!(fault.message.starts_with(message), "{}", fault.message);
    }
    let range = Range {
        stream_id: StreamId(1),
        range_index: RangeIndex(0),
        servers: vec![ReplicaServer::default()],
        ..Range::default()
    };
    assert_eq!(range.fault(), None);
    let copying = |state| ReplicaServer {
        state: ReplicaState(state),
        ..ReplicaServer::default()
    };
    let faulty = [
        Range {
            stream_id: StreamId(0),
            ..range.clone()
        },
        Range {
            range_index: RangeIndex(-1),
            ..range.clone()
        },
        Range {
            start_offset: Offset(-1),
            ..range.clone()
        },
        Range {
            end_marks: u32::MAX,
            ..range.clone()
        },
        Range {
            next_marks: u32::MAX,
            ..range.clone()
        },
        Range {
            servers: vec![copying(0), copying(2)],
            ..range.clone()
        },
    ];
    for range in faulty {
        assert!(range.fault().is_some(), "{range:?}");
    }
}

#[test]
fn orders_of_a_placement_driver_have_a_term_that_can_be() {
    for term in [-1, 0, 1, i64::MIN, i64::MAX] {
        let seal = SealRangesRequest {
            ranges: vec![RangeId::default()],
            term,
            ..SealRangesRequest::default()
        };
        let sync = SyncRangesRequest {
            stream_ranges: vec![StreamRanges::default()],
            term,
            ..SyncRangesRequest::default()
        };
        let delete = DeleteStreamsRequest {
            streams: vec![Stream::default()],
            term,
            ..DeleteStreamsRequest::default()
        };
        let judged = [seal.validate(), sync.validate(), delete.validate()];
        assert_eq!(judged.map(|judged| judged.is_ok()), [term >= 0; 3], "term {term}");
    }
    let avoiding = |servers: Vec<i32>| SealRangesRequest {
        ranges: vec![RangeId::default()],
        avoid: servers.into_iter().map(ServerId).collect(),
        ..SealRangesRequest::default()
    };
    assert_eq!(avoiding(vec![1; MAX_ENTRIES]).validate(), Ok(()));
    assert!(avoiding(vec![1; MAX_ENTRIES + 1]).validate().is_err());
    assert!(avoiding(vec![1, 0]).validate().is_err());
    for wanted in i8::MIN..=i8::MAX {
        let request = ReportMetricsRequest {
            wanted: ServerState(wanted),
            ..ReportMetricsRequest::default()
        };
        assert_eq!(request.validate().is_ok(), (0..=2).contains(&wanted), "state {wanted}");
    }
}
