//! Changing streams and looking at ranges and servers, as a user does.

use sbp_e2e::process::Serving;
use sbp_e2e::wait::until;
use serde_json::Value;

use super::{run, sbp, serve, text};

/// Runs a command that must succeed.
fn done(server: &Serving, arguments: &[&str]) -> String {
    text(&run(server, arguments, ""))
}

/// Runs a command that must be refused, and returns why.
fn refused(server: &Serving, arguments: &[&str]) -> String {
    let output = run(server, arguments, "");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn described(server: &Serving, stream: &str) -> Value {
    serde_json::from_str(&done(server, &["stream", "describe", stream, "--json"])).unwrap()
}

fn start(dir: &tempfile::TempDir) -> Serving {
    let server = serve(dir.path(), "127.0.0.1:0");
    assert_eq!(done(&server, &["stream", "create", "orders"]), "1 orders\n");
    text(&run(&server, &["append", "orders"], "a\nb\nc\nd\n"));
    server
}

#[test]
fn settings_change_and_what_is_not_named_stays() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    let update = |arguments: &[&str]| done(&server, &[&["stream", "update"], arguments].concat());
    assert_eq!(
        update(&[
            "orders",
            "--retention",
            "2h",
            "--retention-bytes",
            "5000000",
            "--property",
            "team=a"
        ]),
        "1 orders, kept 7200 s, at most 5000000 bytes\n"
    );
    // Neither its time nor its properties are named, so both stay.
    assert_eq!(
        update(&["orders", "--name", "archive/orders"]),
        "1 archive/orders, kept 7200 s, at most 5000000 bytes\n"
    );
    let stream = described(&server, "archive/orders");
    assert_eq!(stream["identity"].as_str().map(str::len), Some(32));
    assert_eq!(stream["identity"], described(&server, "1")["identity"]);
    assert_eq!(
        (&stream["properties"]["team"], &stream["latest"]),
        (&"a".into(), &4.into())
    );
    assert_eq!(
        update(&[
            "1",
            "--retention",
            "forever",
            "--retention-bytes",
            "all",
            "--no-properties"
        ]),
        "1 archive/orders, kept for ever\n"
    );
    assert!(described(&server, "1")["properties"].as_object().unwrap().is_empty());
    assert!(refused(&server, &["stream", "update", "orders", "--name", "x"]).contains("1404"));
    for nameless in [&["stream", "create", ""][..], &["stream", "update", "1", "--name", ""]] {
        let output = run(&server, nameless, "");
        assert_eq!(output.status.code(), Some(2), "{nameless:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("a value is required"));
    }
    assert_eq!(done(&server, &["stream", "list", "--json"]).lines().count(), 1);
}

#[test]
fn a_trim_moves_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    assert_eq!(
        done(&server, &["stream", "trim", "orders", "--before", "2"]),
        "1 starts at 2, in range 0\n"
    );
    let left = done(&server, &["fetch", "orders"]);
    let left: Vec<_> = left.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(left, ["c", "d"]);
    assert!(refused(&server, &["stream", "trim", "orders", "--before", "5"]).contains("1463"));
    assert_eq!(
        done(&server, &["stream", "trim", "orders", "--before", "earliest"]),
        "1 starts at 2, in range 0\n"
    );
    assert_eq!(
        done(&server, &["stream", "trim", "orders", "--before", "latest"]),
        "1 starts at 4, in range 0\n"
    );
    assert_eq!(done(&server, &["fetch", "orders"]), "");
}

#[test]
fn a_stream_goes_on_behind_a_seal() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    assert_eq!(done(&server, &["stream", "seal", "orders"]), "range 1 is open from 4\n");
    // The same range once more is no new seal.
    assert_eq!(
        done(&server, &["stream", "seal", "orders", "--range", "0"]),
        "range 1 is open from 4\n"
    );
    done(&server, &["append", "orders", "--data", "e"]);
    let listed = done(&server, &["range", "list", "orders", "--json"]);
    let ranges: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bounds: Vec<_> = ranges
        .iter()
        .map(|range| (range["index"].as_i64(), range["start"].as_i64(), range["end"].as_i64()))
        .collect();
    assert_eq!(bounds, [(Some(0), Some(0), Some(4)), (Some(1), Some(4), None)]);
    assert_eq!(ranges[1]["next"], 5);
    assert_eq!(
        done(&server, &["fetch", "orders"]).lines().count(),
        5,
        "reading goes across"
    );

    assert_eq!(
        done(&server, &["stream", "seal", "orders", "--leave-sealed"]),
        "range 1 is sealed, 4 to 5\n"
    );
    // Somebody may open the next range, so an append waits for that as long as it may.
    let impatient = [
        "append",
        "orders",
        "--data",
        "f",
        "--timeout",
        "500ms",
        "--servers",
        &server.address,
    ];
    let output = sbp(&impatient).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("1460"), "{why}");
    assert_eq!(done(&server, &["stream", "seal", "orders"]), "range 2 is open from 5\n");
    done(&server, &["append", "orders", "--data", "f"]);
}

#[test]
fn ranges_are_listed_by_stream_and_by_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    done(&server, &["stream", "create", "other"]);
    let ids = |arguments: &[&str]| {
        let listed = done(&server, &[&["range", "list", "--json"], arguments].concat());
        let ranges = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        ranges
            .map(|range| range["stream"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), [1, 2]);
    assert_eq!(ids(&["other"]), [2]);
    let id = serde_json::from_str::<Value>(&done(&server, &["range", "list", "orders", "--json"])).unwrap();
    let id = id["server_id"].to_string();
    assert_eq!(ids(&["--server", &id]), [1, 2]);
    assert_eq!(ids(&["other", "--server", &id]), [2]);
    assert_eq!(ids(&["--server", "77"]), [0_i64; 0], "nobody knows that server");
    let table = done(&server, &["range", "list"]);
    assert!(table.contains("STREAM") && table.contains(&server.address), "{table}");
    let cluster = done(&server, &["cluster", "--json"]);
    let node: Value = serde_json::from_str(&cluster).unwrap();
    assert_eq!(
        (&node["address"], &node["leader"]),
        (&server.address.as_str().into(), &true.into())
    );
    assert!(done(&server, &["cluster"]).contains("leader"));
    let status: Value = serde_json::from_str(&done(&server, &["cluster", "status", "--json"])).unwrap();
    let id = status["cluster_id"].as_str().unwrap();
    assert_eq!(id.len(), 32, "{id}");
    assert!(done(&server, &["cluster", "status"]).starts_with(&format!("Cluster {id}\n")));
}

#[test]
fn deleted_streams_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    done(&server, &["stream", "create", "other"]);
    assert!(refused(&server, &["stream", "delete", "orders", "nope"]).contains("nope"));
    assert_eq!(described(&server, "orders")["latest"], 4, "nothing was deleted");
    assert_eq!(
        done(&server, &["stream", "delete", "orders", "2"]),
        "deleted 1 orders\ndeleted 2 other\n"
    );
    assert!(refused(&server, &["append", "1", "--data", "x"]).contains("1404"));
    assert_eq!(
        done(&server, &["stream", "create", "orders"]),
        "3 orders\n",
        "numbers are not used again"
    );
}

#[test]
fn an_append_can_ask_for_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    let stored = text(&run(
        &server,
        &["append", "orders", "--expected-offset", "4", "--batch", "1"],
        "e\nf\n",
    ));
    assert_eq!(
        stored,
        "stored at 4 to 4, durability fsync\nstored at 5 to 5, durability fsync\n"
    );
    let why = refused(&server, &["append", "orders", "--data", "x", "--expected-offset", "4"]);
    assert!(why.contains("1412") && why.contains('6'), "{why}");
    assert_eq!(described(&server, "orders")["latest"], 6);
}

#[test]
fn how_many_servers_hold_a_stream_is_asked_for_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir);
    let why = refused(&server, &["stream", "create", "safe", "--replicas", "3", "--acks", "2"]);
    assert!(
        why.contains("1502") && why.contains("need at least 2 range servers; 1 are up"),
        "{why}"
    );
    let why = refused(&server, &["stream", "create", "safe", "--replicas", "2", "--acks", "3"]);
    assert!(why.contains("ack_count 3 is more than replica_nums 2"), "{why}");
    run(
        &server,
        &["stream", "create", "one", "--replicas", "1", "--acks", "1"],
        "",
    );
    let one = described(&server, "one");
    assert_eq!((&one["replicas"], &one["acks"]), (&1.into(), &1.into()));
    let range = &one["ranges"][0];
    assert_eq!((&range["replicas"], &range["acks"]), (&1.into(), &1.into()));
    assert_eq!(range["servers"], serde_json::json!([range["server"]]));
    let listed = text(&run(&server, &["stream", "list"], ""));
    assert!(listed.contains("REPLICAS"), "{listed}");
    let cluster: Value = serde_json::from_str(&done(&server, &["cluster", "--json"])).unwrap();
    let holder = &cluster["range_servers"][0];
    assert_eq!((&holder["up"], &holder["missing_replicas"]), (&true.into(), &0.into()));
    assert_eq!(
        (&holder["address"], &holder["open_ranges"]),
        (&range["server"], &2.into())
    );
    let shown = text(&run(&server, &["cluster"], ""));
    assert!(shown.contains("MISSING REPLICAS") && shown.contains("up"), "{shown}");
}

/// A placement driver, and two range servers with streams on both.
struct Apart {
    _directories: Vec<tempfile::TempDir>,
    driver: Serving,
    range_servers: Vec<Serving>,
}

impl Apart {
    fn start() -> Self {
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let serve = |directory: &tempfile::TempDir, role: &[&str]| {
            let mut command = sbp(&["serve", "--log", "error", "--listen", "127.0.0.1:0", "--data-dir"]);
            Serving::spawn(command.arg(directory.path()).args(role))
        };
        let driver = serve(&directories[0], &["--role", "placement-driver"]);
        let role = ["--role", "range-server", "--placement-driver", &driver.address];
        let range_servers = directories[1..]
            .iter()
            .map(|directory| serve(directory, &role))
            .collect();
        Self {
            _directories: directories,
            driver,
            range_servers,
        }
    }
}

#[test]
fn a_list_of_streams_is_whole_when_a_range_server_is_away() {
    let mut apart = Apart::start();
    let list = |arguments: &[&str]| run(&apart.driver, &[&["stream", "list", "--json"], arguments].concat(), "");
    let lines = |output: &std::process::Output| {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    // Until both range servers have ranges.
    let mut count = 0;
    let on_both = |driver: &Serving| {
        let ranges = done(driver, &["range", "list", "--json"]);
        apart
            .range_servers
            .iter()
            .all(|server| ranges.contains(&server.address))
    };
    while count < 4 || !on_both(&apart.driver) {
        done(&apart.driver, &["stream", "create", &format!("stream/{count}")]);
        count += 1;
        assert!(count < 1_000, "one range server gets no ranges");
    }
    let all = lines(&list(&[]));
    assert!(
        all.iter()
            .all(|stream| stream["latest"] == 0 && stream.get("error").is_none()),
        "{all:?}"
    );

    let away = apart.range_servers[0].address.clone();
    assert!(
        !apart
            .range_servers
            .remove(0)
            .end(rustix::process::Signal::KILL)
            .success()
    );
    let list = |arguments: &[&str]| run(&apart.driver, &[&["stream", "list"], arguments].concat(), "");
    let began = std::time::Instant::now();
    let output = list(&["--json"]);
    assert!(began.elapsed().as_secs() < 15, "a list waits for 5 s");
    assert_eq!(output.status.code(), Some(1));
    let listed = lines(&output);
    assert_eq!(listed.len(), count);
    let (unknown, known): (Vec<_>, Vec<_>) = listed.iter().partition(|stream| stream["latest"].is_null());
    assert!(!unknown.is_empty() && !known.is_empty(), "{listed:?}");
    for stream in unknown {
        let error = stream["error"].as_str().unwrap();
        assert!(error.contains(&away) && error.contains("can be tried again"), "{error}");
    }
    assert!(known.iter().all(|stream| stream["latest"] == 0));
    let output = list(&[]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(table.lines().count(), count + 1, "{table}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the list is whole") && said.contains(&away), "{said}");
}

/// How the cluster is, once `is_so`.
fn cluster_when(driver: &Serving, is_so: impl Fn(&Value) -> bool) -> Value {
    until("the cluster", || {
        let status = done(driver, &["cluster", "status", "--json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        is_so(&status).then_some(status)
    })
}

fn with_so_many_servers(count: usize) -> impl Fn(&Value) -> bool {
    move |status| {
        let servers = status["range_servers"].as_array().unwrap();
        servers.iter().filter(|server| server["up"] == true).count() == count
    }
}

#[test]
fn a_range_server_is_emptied_and_taken_back_from_the_command_line() {
    let apart = Apart::start();
    let driver = &apart.driver;
    cluster_when(driver, with_so_many_servers(2));
    done(driver, &["stream", "create", "safe", "--replicas", "2", "--acks", "2"]);
    done(driver, &["append", "safe", "--data", "x"]);
    let id = described(driver, "safe")["ranges"][0]["server_id"].to_string();
    let number = described(driver, "safe")["ranges"][0]["server_id"].clone();
    assert!(refused(driver, &["cluster", "drain", "77"]).contains("1404"));
    let drain = run(driver, &["cluster", "drain", &id], "");
    assert_eq!(drain.status.code(), Some(1));
    let (stays, why) = (
        String::from_utf8_lossy(&drain.stdout).into_owned(),
        String::from_utf8_lossy(&drain.stderr).into_owned(),
    );
    assert!(
        stays.contains("is to have 2 replicas, and 1 range servers are up"),
        "{stays}"
    );
    assert!(why.contains(&format!("`sbp cluster drain {id} --undo`")), "{why}");
    let shown = done(driver, &["cluster", "status"]);
    assert!(
        shown.contains("up, draining") && shown.contains("stays on server"),
        "{shown}"
    );
    let directory = tempfile::tempdir().unwrap();
    let mut third = sbp(&[
        "serve",
        "--log",
        "error",
        "--listen",
        "127.0.0.1:0",
        "--role",
        "range-server",
    ]);
    third.args(["--placement-driver", &driver.address, "--data-dir"]);
    let _third = Serving::spawn(third.arg(directory.path()));
    cluster_when(driver, with_so_many_servers(3));
    let done_with = done(driver, &["cluster", "drain", &id]);
    assert!(done_with.contains("it may be stopped and removed"), "{done_with}");
    let status = cluster_when(driver, |_| true);
    let servers = status["range_servers"].as_array().unwrap();
    let drained = servers.iter().find(|server| server["server_id"] == number).unwrap();
    assert_eq!(
        (&drained["drained"], &drained["open_ranges"], &drained["sealed_ranges"]),
        (&true.into(), &0.into(), &0.into())
    );
    assert_eq!(status["members"][0]["leader"], true);
    assert!(done(driver, &["cluster", "drain", &id, "--undo"]).contains("in use again"));
    let status = cluster_when(driver, |_| true);
    let servers = status["range_servers"].as_array().unwrap();
    assert!(servers.iter().all(|server| server["draining"] == false));
    assert_eq!(described(driver, "safe")["latest"], 1);
}

#[test]
fn open_ranges_are_spread_and_an_end_by_force_is_refused_where_it_is_not_needed() {
    let apart = Apart::start();
    let driver = &apart.driver;
    cluster_when(driver, with_so_many_servers(2));
    done(driver, &["cluster", "drain", "1", "--no-wait"]);
    for name in ["a", "b", "c", "d"] {
        done(driver, &["stream", "create", name]);
    }
    done(driver, &["cluster", "drain", "1", "--undo"]);
    let open = |status: &Value| {
        let servers = status["range_servers"].as_array().unwrap();
        let open = servers.iter().map(|server| server["open_ranges"].as_i64().unwrap());
        open.collect::<Vec<_>>()
    };
    assert_eq!(
        open(&cluster_when(driver, |_| true)),
        [0, 4],
        "none is placed where it is to be emptied"
    );
    let planned = done(driver, &["cluster", "balance", "--dry-run"]);
    assert!(
        planned.contains("2 ranges would be sealed; nothing was done"),
        "{planned}"
    );
    let planned = done(driver, &["cluster", "balance", "--dry-run", "--most", "1"]);
    assert!(planned.contains("1 ranges would be sealed"), "{planned}");
    assert_eq!(open(&cluster_when(driver, |_| true)), [0, 4]);
    let sealed = done(driver, &["cluster", "balance"]);
    assert!(sealed.contains("2 ranges were sealed"), "{sealed}");
    // A range whose other server was not asked in time stays, and is moved by the next command. Between its old server and the
    // new one a stream has a range on both: a command that comes then may move one too many, which a later one moves back, and
    // counts that are even then need not stay so.
    until("an even spread that nothing is to be done about", || {
        let said = done(driver, &["cluster", "balance"]);
        let is_even = open(&cluster_when(driver, |_| true)) == [2, 2];
        (is_even && said.contains("nothing to do")).then_some(())
    });
    done(driver, &["stream", "create", "safe", "--replicas", "2", "--acks", "2"]);
    let why = refused(driver, &["cluster", "force-seal", "nothing"]);
    assert!(why.contains("STREAM/INDEX"), "{why}");
    let why = refused(driver, &["cluster", "force-seal", "safe/0"]);
    assert!(why.contains("--yes"), "{why}");
    let why = refused(driver, &["cluster", "force-seal", "safe/0", "--yes"]);
    assert!(why.contains("nothing is lost"), "{why}");
}
