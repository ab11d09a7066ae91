//! The rules as data: which crate may use which, and which libraries belong where.

/// The rules by name, with what each asks for.
pub(super) const RULES: [(&str, &str); 12] = [
    (
        "L1",
        "the core (types, buffers, wire, frame, schema, messages, record, session, replication, log, and the other protocols) has no runtime, no sockets, no Python; all of it but log reads no clock",
    ),
    (
        "L2",
        "flatbuffers is used by schema, messages and record alone, and shows in no public signature",
    ),
    ("L3", "the frame codec knows no messages"),
    ("L4", "client and server do not use each other"),
    ("L5", "the log stores batches as opaque bytes: it uses no codec"),
    ("L6", "pyo3 is used by sbp-python alone"),
    ("L7", "test support is a dev-dependency"),
    (
        "L8",
        "importing sbp_native needs neither pyspark nor pyarrow and never imports sbp_native.spark",
    ),
    ("L9", "unsafe code is in sbp-schema (generated) and sbp-python alone"),
    (
        "L10",
        "no lock queues its threads in a table of the whole process, which a forked child could not use: locks are those of sbp-locks",
    ),
    (
        "L11",
        "the modules of a crate stand in the order that its Cargo.toml declares, lowest first, and use what is below them; modules beside each other use each other in no circle",
    ),
    (
        "L12",
        "a protocol beside SBP knows neither another one nor SBP's frames, sessions, messages and clients; whoever knows SBP knows no other one, but for sbp-gateway and what a user runs",
    ),
];

/// What each crate of ours may use among ours, by name. A crate that is not listed may use nothing, and is reported.
#[rustfmt::skip]
pub(super) const EDGES: [(&str, &str); 31] = [
    ("sbp-types", ""),
    ("sbp-locks", ""),
    ("sbp-buffers", ""),
    ("sbp-wire", ""),
    ("sbp-frame", "sbp-types sbp-wire"),
    ("sbp-schema", ""),
    ("sbp-messages", "sbp-types sbp-frame sbp-schema"),
    ("sbp-record", "sbp-types sbp-schema"),
    ("sbp-session", "sbp-types sbp-buffers sbp-wire sbp-frame"),
    ("sbp-transport", "sbp-types sbp-locks sbp-wire"),
    ("sbp-tank", "sbp-wire"),
    ("sbp-seastar", "sbp-wire"),
    ("sbp-pravega", "sbp-wire"),
    ("sbp-peers", "sbp-types sbp-locks sbp-wire sbp-transport sbp-record sbp-grpc sbp-tank sbp-seastar sbp-pravega"),
    ("sbp-gateway", "sbp-types sbp-locks sbp-wire sbp-transport sbp-messages sbp-record sbp-client sbp-tank sbp-seastar sbp-pravega sbp-peers sbp-grpc"),
    ("sbp-log", "sbp-types sbp-locks sbp-buffers sbp-replication"),
    ("sbp-replication", "sbp-types"),
    ("sbp-grpc", "sbp-transport"),
    ("sbp-etcd", "sbp-transport sbp-grpc"),
    ("sbp-client", "sbp-types sbp-locks sbp-frame sbp-messages sbp-record sbp-session sbp-transport"),
    ("sbp-server", "sbp-types sbp-locks sbp-frame sbp-messages sbp-record sbp-session sbp-transport sbp-replication sbp-log sbp-etcd"),
    ("sbp-http", "sbp-locks sbp-transport sbp-server"),
    ("sbp-cli", "sbp-types sbp-locks sbp-frame sbp-messages sbp-record sbp-client sbp-server sbp-http sbp-proxy sbp-gateway"),
    ("sbp-proxy", "sbp-locks sbp-frame sbp-transport"),
    ("sbp-python", "sbp-types sbp-locks sbp-buffers sbp-messages sbp-record sbp-client sbp-server sbp-http sbp-cli sbp-proxy sbp-peers sbp-gateway sbp-python-macros"),
    ("sbp-python-macros", ""),
    ("sbp-fuzz", "sbp-types sbp-locks sbp-wire sbp-tank sbp-seastar sbp-pravega sbp-frame sbp-messages sbp-record sbp-session sbp-log sbp-server sbp-sim"),
    ("xtask", ""),
    ("sbp-e2e", "sbp-types sbp-locks sbp-frame sbp-messages sbp-record sbp-client sbp-server sbp-etcd"),
    ("sbp-sim", "sbp-types sbp-locks sbp-log"),
    ("sbp-world", "sbp-types sbp-replication"),
];

/// The crates without runtime, sockets and Python, however deep.
pub(super) const CORE: [&str; 13] = [
    "sbp-tank",
    "sbp-seastar",
    "sbp-pravega",
    "sbp-types",
    "sbp-buffers",
    "sbp-wire",
    "sbp-frame",
    "sbp-schema",
    "sbp-messages",
    "sbp-record",
    "sbp-session",
    "sbp-replication",
    "sbp-log",
];

/// The part of the core that a log on disk is not: it also reads no clock and makes no system call.
pub(super) const PURE: [&str; 12] = [
    "sbp-tank",
    "sbp-seastar",
    "sbp-pravega",
    "sbp-types",
    "sbp-buffers",
    "sbp-wire",
    "sbp-frame",
    "sbp-schema",
    "sbp-messages",
    "sbp-record",
    "sbp-session",
    "sbp-replication",
];

/// The protocols beside SBP.
pub(super) const OTHER_PROTOCOLS: [&str; 3] = ["sbp-tank", "sbp-seastar", "sbp-pravega"];

/// What speaks SBP.
pub(super) const SBP: [&str; 5] = ["sbp-frame", "sbp-session", "sbp-messages", "sbp-client", "sbp-server"];

/// Who may know SBP and another protocol: what brings one to the other, and what a user runs.
pub(super) const BOTH: [&str; 5] = ["sbp-gateway", "sbp-cli", "sbp-python", "sbp-e2e", "sbp-fuzz"];

/// Libraries that no crate of the core may reach, however deep.
pub(super) const RUNTIMES: [&str; 8] = [
    "tokio",
    "async-std",
    "smol",
    "async-io",
    "mio",
    "socket2",
    "pyo3",
    "redb",
];

/// Libraries that the pure part may not reach either: they make system calls.
pub(super) const SYSTEM: [&str; 3] = ["rustix", "nix", "sbp-locks"];

/// Libraries that only some crates may name.
pub(super) const RESERVED: [(&str, &str, &[&str]); 4] = [
    ("L10", "parking_lot", &[]),
    ("L2", "flatbuffers", &["sbp-schema", "sbp-messages", "sbp-record"]),
    ("L6", "pyo3", &["sbp-python"]),
    (
        "L1",
        "tokio",
        &[
            "sbp-transport",
            "sbp-client",
            "sbp-grpc",
            "sbp-etcd",
            "sbp-server",
            "sbp-http",
            "sbp-cli",
            "sbp-proxy",
            "sbp-peers",
            "sbp-gateway",
            "sbp-python",
            "sbp-e2e",
        ],
    ),
];

/// Libraries for tests and benchmarks.
pub(super) const TEST_ONLY: [&str; 4] = ["allocation-counter", "criterion", "proptest", "stateright"];

/// Crates that are tests as a whole: others use them for their tests alone, and they may turn test doubles on.
pub(super) const TEST_CRATES: [&str; 4] = ["sbp-fuzz", "sbp-e2e", "sbp-sim", "sbp-world"];

/// The feature of ours that turns test doubles on.
pub(super) const TEST_FEATURE: &str = "testing";

/// The rules and the edges, as text.
pub(crate) fn help() -> String {
    let rules: Vec<_> = RULES.iter().map(|(name, text)| format!("  {name}  {text}\n")).collect();
    let edges: Vec<_> = EDGES
        .iter()
        .map(|(from, to)| format!("  {from} -> {}\n", to.replace(' ', ", ")))
        .collect();
    format!("Rules:\n{}\nAllowed edges:\n{}", rules.concat(), edges.concat())
}
