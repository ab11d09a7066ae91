//! The protocol's page says what the code does.

use sbp_frame::{Flags, MAGIC, MAX_FRAME_LENGTH, MIN_FRAME_LENGTH, OpCode};
use sbp_messages::*;
use sbp_session::{Limits, Role as Side, SessionConfig};

const PAGE: &str = include_str!("../../../../schemas/README.md");
const SCHEMA: &str = include_str!("../../../../schemas/sbp.fbs");

/// Fails when the page, its lines joined, lacks the words.
fn expect_words(words: &str) {
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(words), "schemas/README.md lacks {words:?}");
}

/// Fails with all lines that the page lacks.
fn expect_lines(wanted: impl IntoIterator<Item = String>) {
    let missing: Vec<_> = wanted
        .into_iter()
        .filter(|line| !PAGE.lines().any(|found| found == line))
        .collect();
    assert!(missing.is_empty(), "schemas/README.md lacks\n{}", missing.join("\n"));
}

/// All but the column with the class in Python, which `tests/python/test_errors_page.py` compares, and all of the rows of
/// a client's own codes with it.
#[test]
fn every_error_code_has_its_row() {
    for code in ErrorCode::ALL {
        let rule = code.rule();
        let retry = match rule.retry {
            Retry::Never => "no",
            Retry::Now => "now",
            Retry::Later => "later",
            Retry::Elsewhere => "elsewhere",
            Retry::Refresh => "refresh",
        };
        let done = if rule.may_have_been_done { "maybe" } else { "no" };
        let (front, back) = (
            format!("| {} | {} | {retry} | {done} | ", code.0, rule.name),
            format!(" | {} |", rule.advice),
        );
        assert!(
            PAGE.lines()
                .any(|line| line.starts_with(&front) && line.ends_with(&back)),
            "schemas/README.md lacks {front}...{back}"
        );
    }
}

/// The messages of an operation, as the page shows them: request, response.
#[derive(Default)]
struct Pair {
    request: Option<&'static str>,
    response: Option<&'static str>,
}

/// Who carries what, asked of the messages themselves.
fn messages() -> Vec<(OpCode, Pair)> {
    let mut pairs: Vec<(OpCode, Pair)> = OpCode::ALL.iter().map(|opcode| (*opcode, Pair::default())).collect();
    macro_rules! note {
        ($( $message:ident )*) => {
            $(
                let found = pairs.iter_mut().find(|(opcode, _)| *opcode == <$message as Message>::OPCODE);
                let (_, pair) = found.expect("an operation of the table");
                let place = match <$message as Message>::ROLE {
                    Role::Request => &mut pair.request,
                    Role::Response => &mut pair.response,
                };
                assert_eq!(place.replace(stringify!($message)), None, "two messages in one place");
            )*
        };
    }
    note! {
        GoAway HeartbeatRequest HeartbeatResponse IdAllocationRequest IdAllocationResponse
        AppendRequest AppendResponse FetchRequest FetchResponse
        ListRangesRequest ListRangesResponse SealRangesRequest SealRangesResponse
        SyncRangesRequest SyncRangesResponse CreateRangeRequest CreateRangeResponse
        DescribeRangesRequest DescribeRangesResponse CreateStreamsRequest CreateStreamsResponse
        DeleteStreamsRequest DeleteStreamsResponse UpdateStreamsRequest UpdateStreamsResponse
        DescribeStreamsRequest DescribeStreamsResponse TrimStreamsRequest TrimStreamsResponse
        ReportMetricsRequest ReportMetricsResponse
        DescribePlacementDriverClusterRequest DescribePlacementDriverClusterResponse
    }
    pairs
}

#[test]
fn every_operation_has_its_row_with_its_messages() {
    expect_lines(messages().into_iter().map(|(opcode, pair)| {
        let messages = match (opcode, pair.request, pair.response) {
            (OpCode::PING, None, None) => "none; header and payload come back unchanged".to_owned(),
            (OpCode::GOAWAY, Some(request), None) => format!("`{request}` or no header; never answered"),
            (_, Some(request), Some(response)) => format!("`{request}` → `{response}`"),
            (opcode, ..) => panic!("{opcode} lacks a message"),
        };
        let payload = match opcode {
            OpCode::PING => " any",
            OpCode::APPEND => " in the request",
            OpCode::FETCH => " in the response",
            _ => "",
        };
        let name = opcode.name().expect("of the table");
        format!("| 0x{:04x} | {name} | {messages} |{payload} |", opcode.0)
    }));
}

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

/// The rows of the page of operations that speak of `name`, in each of its three tables.
fn rows_of(name: &str) -> [Vec<&'static str>; 3] {
    ["## Who asks", "## Asked twice", "## Tests"].map(|title| {
        let (_, section) = OPERATIONS.split_once(title).expect("a section");
        let section = section.split("\n## ").next().unwrap_or(section);
        let (plain, qualified) = (format!("| {name} |"), format!("| {name}, "));
        let about = |line: &&str| line.starts_with(&plain) || line.starts_with(&qualified);
        section.lines().filter(about).collect()
    })
}

#[test]
fn every_operation_is_on_the_page_of_operations_in_each_of_its_tables() {
    for opcode in OpCode::ALL {
        let name = opcode.name().expect("of the table");
        for rows in rows_of(name) {
            assert!(!rows.is_empty(), "docs/operations.md lacks a row of {name}");
        }
    }
}

#[test]
fn the_tests_that_the_page_of_operations_names_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let (mut found, mut missing) = (0, Vec::new());
    for (at, _) in OPERATIONS.match_indices("[`") {
        let Some((name, rest)) = OPERATIONS[at + 2..].split_once("`](") else {
            continue;
        };
        let path = rest.split(')').next().unwrap_or_default();
        if !["../crates/", "../tests/e2e/"]
            .iter()
            .any(|place| path.starts_with(place))
        {
            continue;
        }
        found += 1;
        let text = std::fs::read_to_string(format!("{root}/{path}")).unwrap_or_default();
        if !text.contains(&format!("fn {name}(")) {
            missing.push(format!("{name} in {path}"));
        }
    }
    assert!(
        missing.is_empty(),
        "docs/operations.md names tests that are not there:\n{}",
        missing.join("\n")
    );
    assert!(found > 40, "{found} tests are named");
}

/// Names of calls that the page promises, looked for where they are.
#[test]
fn the_calls_that_the_page_of_operations_names_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../sbp-client/src");
    let mut sources = String::new();
    let mut folders = vec![std::path::PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the client's sources") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).expect("text"));
            }
        }
    }
    let table = OPERATIONS.split("## Asked twice").next().unwrap_or_default();
    let mut found = 0;
    for call in table.split('`').skip(1).step_by(2).filter(|word| !word.contains('/')) {
        let name = call.rsplit("::").next().unwrap_or(call);
        if name == "kind" {
            continue;
        }
        assert!(
            sources.contains(&format!("fn {name}(")),
            "docs/operations.md names {call}, which the client has not"
        );
        found += 1;
    }
    assert!(found > 20, "{found} calls are named");
}

#[test]
fn the_frames_constants_are_told() {
    expect_lines([
        format!("| Magic | {MAGIC} |"),
        format!(
            "| Frame Length | bytes behind this field: 12 + h + p + 4; from {MIN_FRAME_LENGTH} to {} |",
            thousands(MAX_FRAME_LENGTH.into())
        ),
        format!(
            "| 0x{:02x} | RESPONSE | answers the request of that number |",
            Flags::RESPONSE.bits()
        ),
        format!("| 0x{:02x} | END | the last frame of the answer |", Flags::END.bits()),
    ]);
    let error = format!("| 0x{:02x} | SYSTEM_ERROR |", Flags::SYSTEM_ERROR.bits());
    assert!(
        PAGE.lines().any(|line| line.starts_with(&error)),
        "schemas/README.md lacks {error}"
    );
}

/// 1024 as people write it.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut parts = vec![digits[..first].to_owned()];
    parts.extend(
        digits.as_bytes()[first..]
            .chunks(3)
            .map(|three| String::from_utf8_lossy(three).into_owned()),
    );
    parts.retain(|part| !part.is_empty());
    parts.join(",")
}

#[test]
fn the_limits_are_told() {
    let limits = Limits::default();
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let count = |number: usize| thousands(u64::try_from(number).expect("small"));
    let header = |bytes: u32| mib(usize::try_from(bytes).expect("small"));
    expect_lines([
        format!("| Frame Length | {} |", thousands(limits.frame_length.into())),
        format!(
            "| extended header of a request · of a response | {} · {} |",
            header(limits.request_header),
            header(limits.response_header)
        ),
        format!("| header and payload of a PING | {} KiB |", limits.ping >> 10),
        format!(
            "| PINGs answered | {} at once, refilled by {} a second; the rest is dropped |",
            limits.pings, limits.pings_per_second
        ),
        format!(
            "| entries of a request; in DESCRIBE_STREAMS numbers and names together | {} |",
            count(limits.entries)
        ),
        format!("| calls under way on a connection | {} |", count(limits.calls)),
        format!(
            "| requests read and not yet answered, on a connection | {} |",
            mib(limits.request_bytes)
        ),
        format!(
            "| answers not yet written, on a connection | {} |",
            mib(limits.answer_bytes)
        ),
        format!(
            "| FETCHes that wait, on a connection; they count in none of the three above | {} |",
            count(limits.waits)
        ),
    ]);
    assert_eq!(limits.entries, MAX_ENTRIES);
    let budget = format!(
        "of a budget of {} that refills by {} a second",
        limits.discards, limits.discards_per_second
    );
    expect_words(&budget);
}

#[test]
fn the_pace_is_told() {
    let (config, limits) = (SessionConfig::new(Side::Server), Limits::default());
    let head = config.head_timeout.as_secs();
    expect_lines([
        format!("| the first 16 bytes of a frame, from the first of them on | {head} s |"),
        format!(
            "| the rest of a frame | {head} s, and a second more for every {} KiB that came |",
            config.body_bytes_per_second >> 10
        ),
        format!(
            "| bytes that wait to be written, of which the peer takes none | {} s; {} s while the server's memory is short |",
            config.stall_timeout.as_secs(),
            config.short_stall_timeout.as_secs_f64()
        ),
        format!(
            "| the last bytes before closing | {} s |",
            config.flush_timeout.as_secs()
        ),
        format!(
            "| finishing what was started, behind a GOAWAY | {} s |",
            config.grace.as_secs()
        ),
        format!("| frames of one answer | {} |", thousands(limits.answer_frames.into())),
        format!(
            "| bytes of one answer, beyond what was asked for | {} MiB |",
            limits.answer_overshoot >> 20
        ),
        format!(
            "| answers still outstanding to calls that were given up | {}; more than that for {} s at most |",
            thousands(u64::try_from(limits.orphans).expect("small")),
            limits.orphan_age.as_secs()
        ),
    ]);
}

#[test]
fn the_pace_of_heartbeats_is_told() {
    let config = SessionConfig::new(Side::Client);
    let every = format!(
        "HEARTBEATs go on every {} seconds of silence;",
        config.heartbeat_interval.as_secs()
    );
    expect_words(&every);
    assert_eq!(config.silent_intervals, 3, "three intervals of silence");
    let grace = format!("`grace_ms` ({} seconds)", config.grace.as_secs());
    expect_words(&grace);
}

#[test]
fn every_feature_is_named() {
    let names = [
        features::NAMES,
        features::CONDITIONAL_APPEND,
        features::IDEMPOTENCE,
        features::REPLICATION,
        features::CLUSTER,
        features::BOUNDED_FETCH,
        features::DURABILITY,
        features::SERVER_ID,
        features::MAX_CALLS,
        features::MAX_BYTES,
        features::MAX_WAITS,
        features::MAX_ENTRIES,
        features::MAX_HEADER,
    ];
    for name in names {
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "schemas/README.md lacks the feature {name}"
        );
    }
}

/// The row of each table, as the schema has it.
fn rows() -> Vec<String> {
    let mut rows = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    let (mut table, mut extension) = (String::new(), false);
    for line in SCHEMA.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["table" | "struct", name, "{", ..] => (table, extension) = ((*name).to_owned(), false),
            ["//", "extension", ..] => extension = true,
            ["}"] if !table.is_empty() => {
                rows.push(format!("| `{table}` | {} |", fields.join(" · ")));
                fields.clear();
                table.clear();
            }
            _ if !table.is_empty() && line.starts_with("  ") && line.contains(':') => {
                fields.push(field(line, &mut extension));
            }
            _ => {}
        }
    }
    rows
}

/// A field as the page writes it; the first extension of a table is marked.
fn field(line: &str, extension: &mut bool) -> String {
    let (name, rest) = line.trim().split_once(':').expect("a name and a type");
    let declared = rest.split(';').next().expect("the end of the field");
    let Some((kind, id)) = declared.split_once(" (id: ") else {
        return format!("`{name}` {declared}");
    };
    let id = id.trim_end_matches(')');
    let kind = match kind.split_once(" = ") {
        Some((kind, "null")) => format!("{kind} optional"),
        Some((kind, "0" | "false" | "NONE" | "UNSPECIFIED" | "RECORD_LIST")) => kind.to_owned(),
        _ => kind.to_owned(),
    };
    let mark = if std::mem::take(extension) { "**+** " } else { "" };
    format!("{mark}{id} `{name}` {kind}")
}

#[test]
fn every_table_has_its_row_with_every_field() {
    let rows = rows();
    assert!(rows.len() > 60, "{} tables were found in the schema", rows.len());
    let ids: usize = rows.iter().map(|row| row.matches(" `").count() - 1).sum();
    assert!(ids > 200, "{ids} fields were found in the schema");
    expect_lines(rows);
}

#[test]
fn every_enumeration_has_its_row() {
    let mut found = 0;
    for line in SCHEMA
        .lines()
        .filter(|line| line.starts_with("enum ") && line.ends_with('}'))
    {
        let (name, rest) = line
            .trim_start_matches("enum ")
            .split_once(" : ")
            .expect("a name and a type");
        let (_, values) = rest.trim_end_matches('}').split_once('{').expect("values");
        let values: Vec<String> = values
            .split(',')
            .map(|value| {
                let (name, number) = value.trim().split_once(" = ").expect("a name and a number");
                format!("{number} {name}")
            })
            .collect();
        expect_lines([format!("| `{name}` | {} |", values.join(" · "))]);
        found += 1;
    }
    assert_eq!(found, 7, "enumerations on one line");
}
