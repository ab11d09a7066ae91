//! The `sbp` binary as a user runs it.

use std::io::Read;
use std::process::Stdio;

use super::{run, sbp, serve, text};

#[test]
fn records_go_in_and_come_out_and_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    assert_eq!(text(&run(&server, &["stream", "create", "orders"], "")), "1 orders\n");
    let stored = text(&run(&server, &["append", "orders"], "first\nsecond\n"));
    assert_eq!(stored, "stored at 0 to 1, durability fsync\n");
    text(&run(&server, &["append", "1", "--data", "third", "--key", "k"], ""));
    let address = server.address.clone();
    assert!(!server.end(rustix::process::Signal::KILL).success());

    let server = serve(dir.path(), &address);
    let read = text(&run(&server, &["fetch", "orders", "--json"], ""));
    let read: Vec<serde_json::Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let values: Vec<_> = read.iter().map(|record| record["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["first", "second", "third"]);
    assert_eq!((&read[2]["offset"], &read[2]["key"]), (&2.into(), &"k".into()));
    let part = text(&run(&server, &["fetch", "orders", "--from", "1", "--to", "2"], ""));
    assert!(part.starts_with("1 ") && part.ends_with(" second\n"), "{part}");
    let last = text(&run(&server, &["fetch", "orders", "--from", "latest-1"], ""));
    assert!(last.starts_with("2 ") && last.lines().count() == 1, "{last}");
    let recent = text(&run(&server, &["fetch", "orders", "--from", "-1h"], ""));
    assert_eq!(recent.lines().count(), 3, "{recent}");
    let before = text(&run(&server, &["fetch", "orders", "--to", "-1h"], ""));
    assert_eq!(before, "");
    let listed = text(&run(&server, &["stream", "list", "--json"], ""));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["name"], &listed["latest"]), (&"orders".into(), &3.into()));
    let described = text(&run(&server, &["stream", "describe", "orders"], ""));
    assert!(
        described.contains("orders") && described.contains(&address),
        "{described}"
    );
    assert!(text(&run(&server, &["ping", "-n", "1"], "")).contains("durability fsync"));
    assert!(
        server.end(rustix::process::Signal::TERM).success(),
        "SIGTERM ends a server cleanly"
    );
}

#[test]
fn failures_name_the_thing_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let missing = run(&server, &["fetch", "nope"], "");
    assert_eq!(missing.status.code(), Some(1));
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(words.contains("nope") && words.contains("1404"), "{words}");

    // A second server on the same directory, and on the same port.
    let other = tempfile::tempdir().unwrap();
    for (dir, listen) in [(dir.path(), "127.0.0.1:0"), (other.path(), server.address.as_str())] {
        let refused = sbp(&["serve", "--listen", listen, "--data-dir"])
            .arg(dir)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        // Behind the log of what it did until then.
        let error = words.lines().last().unwrap_or_default();
        assert!(error.starts_with("error: ") && error.len() > 30, "{words}");
    }
    let address = server.address.clone();
    assert!(server.end(rustix::process::Signal::INT).success());
    let unreachable = sbp(&["ping", "--servers", &address]).output().unwrap();
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unreachable.stderr).contains(&address));
    assert_eq!(sbp(&["fetch"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn following_prints_what_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s"], ""));
    let mut follower = sbp(&["fetch", "s", "--follow", "--max", "2", "--servers", &server.address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    text(&run(&server, &["append", "s", "--data", "one"], ""));
    text(&run(&server, &["append", "s", "--data", "two"], ""));
    let mut printed = String::new();
    follower.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(follower.wait().unwrap().success());
    let values: Vec<_> = printed.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(values, ["one", "two"]);
}

/// A server with the stream `flights`, whose rows have every kind of column that JSON has no word for.
fn with_flights(dir: &std::path::Path) -> super::Serving {
    let server = serve(dir, "127.0.0.1:0");
    let columns = [
        "origin:string",
        "price:decimal(10,2)",
        "photo:binary",
        "stops:List(Int32)",
        "late:float",
        "at:timestamp",
    ];
    let mut create = vec!["stream", "create", "flights"];
    create.extend(columns.iter().flat_map(|column| ["--column", column]));
    text(&run(&server, &create, ""));
    server
}

const ROWS: [&str; 3] = [
    r#"{"origin":"null","price":1.50,"photo_hex":"00ff","stops":[1,null,3],"late":0.1,"at":"2026-01-31T10:00:00Z"}"#,
    r#"{"origin":null,"price":null,"photo_hex":null,"stops":null,"late":null,"at":null}"#,
    r#"{"origin":"two words","price":-0.07,"photo_hex":"","stops":[],"late":"NaN","at":"1969-12-31T23:59:59.999999Z"}"#,
];

#[test]
fn rows_come_out_of_json_as_they_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let server = with_flights(dir.path());
    text(&run(
        &server,
        &["append", "flights", "--format", "json"],
        &ROWS.join("\n"),
    ));
    let fetched = text(&run(&server, &["fetch", "flights", "--json"], ""));
    for (offset, (line, row)) in fetched.lines().zip(ROWS).enumerate() {
        assert!(
            line.starts_with(&format!(r#"{{"offset":{offset},"timestamp":"#)),
            "{line}"
        );
        assert!(line.ends_with(&format!(r#","columns":{row}}}"#)), "{line} is not {row}");
    }
    // And a copy from what was fetched.
    let columns = [
        "origin:string",
        "price:decimal(10,2)",
        "photo:binary",
        "stops:List(Int32)",
        "late:float",
        "at:timestamp",
    ];
    let mut create = vec!["stream", "create", "copy"];
    create.extend(columns.iter().flat_map(|column| ["--column", column]));
    text(&run(&server, &create, ""));
    text(&run(&server, &["append", "copy", "--format", "json"], &fetched));
    let copied = text(&run(&server, &["fetch", "copy", "--json"], ""));
    assert_eq!(copied.lines().count(), ROWS.len());
    assert!(
        copied.lines().zip(ROWS).all(|(line, row)| line.contains(row)),
        "{copied}"
    );
    let read = text(&run(&server, &["fetch", "flights"], ""));
    let read: Vec<_> = read.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
    assert!(
        read[0].starts_with(r#"origin="null" price=1.50 photo=00ff"#),
        "{}",
        read[0]
    );
    assert!(read[1].starts_with("origin=null price=null"), "{}", read[1]);
    assert!(read[2].starts_with(r#"origin="two words" price=-0.07"#), "{}", read[2]);
    let listed = text(&run(&server, &["stream", "list"], ""));
    assert!(listed.contains("6 columns"), "{listed}");
}

#[test]
fn a_row_that_does_not_fit_is_named_and_nothing_of_its_batch_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = with_flights(dir.path());
    for (wrong, word) in [
        (r#"{"price": "much"}"#, "much"),
        (r#"{"prize": 1}"#, "prize"),
        ("soon", "no JSON object"),
    ] {
        let lines = format!("{}\n{wrong}\n", ROWS[0]);
        let refused = run(&server, &["append", "flights", "--format", "json"], &lines);
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("line 2") && words.contains(word), "{words}");
    }
    for args in [
        &["append", "flights"][..],
        &["append", "flights", "--format", "json", "--key", "k"],
    ] {
        let refused = run(&server, args, "text\n");
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("rows of columns"), "{words}");
    }
    let raw = run(&server, &["fetch", "flights", "--format", "raw"], "");
    assert!(text(&raw).is_empty(), "nothing was stored");
}

#[test]
fn records_come_out_of_json_as_they_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders", "copy"], ""));
    let lines = [
        r#"{"value": "two\nlines", "key": "k", "headers": {"from": "web", "raw_hex": "ff"}}"#,
        r#"{"value": null, "key_hex": "ff00"}"#,
        r#"{"value": "", "timestamp": "2026-01-31T10:00:00.250Z"}"#,
        r#"{"value": "null"}"#,
    ];
    text(&run(
        &server,
        &["append", "orders", "--format", "json", "--header", "by=test"],
        &lines.join("\n"),
    ));
    let fetched = text(&run(&server, &["fetch", "orders", "--json"], ""));
    let records: Vec<serde_json::Value> = fetched
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records[0]["value"], "two\nlines");
    assert_eq!(
        records[0]["headers"],
        serde_json::json!({"by": "test", "from": "web", "raw_hex": "ff"})
    );
    assert_eq!(
        (&records[1]["value"], &records[1]["key_hex"]),
        (&serde_json::Value::Null, &"ff00".into())
    );
    assert_eq!(records[2]["timestamp"], "2026-01-31T10:00:00.250Z");
    text(&run(&server, &["append", "copy", "--format", "json"], &fetched));
    assert_eq!(text(&run(&server, &["fetch", "copy", "--json"], "")), fetched);

    let plain = text(&run(&server, &["fetch", "orders"], ""));
    let plain: Vec<_> = plain.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
    assert_eq!(plain, [r#"k="two\nlines""#, "hex:ff00=null", r#""""#, r#""null""#]);
    let raw = text(&run(
        &server,
        &["fetch", "orders", "--format", "raw", "--delimiter", r"\0"],
        "",
    ));
    assert_eq!(raw, "two\nlines\0\0\0null\0");
    let first = text(&run(&server, &["fetch", "orders", "--format", "raw", "--max", "1"], ""));
    assert_eq!(first, "two\nlines\n");
}

/// Runs a command that must be refused, and returns why.
fn refused(server: &super::Serving, arguments: &[&str], input: &str) -> String {
    let output = run(server, arguments, input);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_value_without_a_key_is_not_mistaken_for_one_with_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s"], ""));
    text(&run(&server, &["append", "s", "--data", "a=b=c"], ""));
    text(&run(&server, &["append", "s", "--data", "b=c", "--key", "a"], ""));
    text(&run(&server, &["append", "s", "--data", "c", "--key", "a=b"], ""));
    text(&run(&server, &["append", "s", "--data", "x\u{2028}y\u{85}z"], ""));
    let plain = text(&run(&server, &["fetch", "s"], ""));
    let plain: Vec<_> = plain
        .split('\n')
        .map(|line| line.splitn(3, ' ').last().unwrap())
        .collect();
    assert_eq!(plain, [r#""a=b=c""#, "a=b=c", r#""a=b"=c"#, r#""x\u2028y\u0085z""#, ""]);
}

#[test]
fn two_headers_of_one_name_are_both_there() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s", "copy"], ""));
    text(&run(
        &server,
        &["append", "s", "--data", "v", "--header", "a=1", "--header", "a=2"],
        "",
    ));
    text(&run(
        &server,
        &["append", "s", "--data", "v", "--header", "a_hex=61"],
        "",
    ));
    let fetched = text(&run(&server, &["fetch", "s", "--json"], ""));
    let mut headers = Vec::new();
    for line in fetched.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        headers.push(record["headers"].to_string());
    }
    // The second one's name says that bytes follow, which does not make it the header `a`.
    assert_eq!(headers, [r#"[{"a":"1"},{"a":"2"}]"#, r#"{"a_hex_hex":"3631"}"#]);
    text(&run(&server, &["append", "copy", "--format", "json"], &fetched));
    assert_eq!(text(&run(&server, &["fetch", "copy", "--json"], "")), fetched);
}

#[test]
fn nested_bytes_are_marked_and_read_back_and_nested_text_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let columns = [
        "bin:binary",
        "bin_hex:string",
        "lb:list<binary>",
        "tags\nof:list<string>",
    ];
    for stream in ["s", "copy"] {
        let mut create = vec!["stream", "create", stream];
        create.extend(columns.iter().flat_map(|column| ["--column", column]));
        text(&run(&server, &create, ""));
    }
    let row = r#"{"bin_hex_hex":"00","bin_hex":"text","lb_hex":["01",null],"tags\nof":["a\nb","null",null]}"#;
    text(&run(&server, &["append", "s", "--format", "json"], row));
    let fetched = text(&run(&server, &["fetch", "s", "--json"], ""));
    assert!(fetched.ends_with(&format!("\"columns\":{row}}}\n")), "{fetched}");
    text(&run(&server, &["append", "copy", "--format", "json"], &fetched));
    let copied = text(&run(&server, &["fetch", "copy", "--json"], ""));
    assert!(copied.ends_with(&format!("\"columns\":{row}}}\n")), "{copied}");
    let plain = text(&run(&server, &["fetch", "s"], ""));
    let columns = plain.splitn(3, ' ').nth(2).unwrap();
    let expected = r#"bin=00 bin_hex=text lb=["01",null] "tags\nof"=["a\nb","null",null]"#;
    assert_eq!(columns, format!("{expected}\n"));
}

#[test]
fn types_that_no_stream_has_are_refused_where_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let create = |column| refused(&server, &["stream", "create", "s", "--column", column], "");
    for column in ["n:uint8", "n:UInt64", "n:list<uint32>"] {
        let said = create(column);
        assert!(said.contains("--column") && said.contains(column), "{said}");
    }
    let help = text(&sbp(&["stream", "create", "--help"]).output().unwrap());
    assert!(!help.contains("uint") && help.contains("list<TYPE>"), "{help}");
}

#[test]
fn a_number_that_would_be_rounded_is_refused_with_its_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(
        &server,
        &["stream", "create", "s", "--column", "price:decimal(10,2)"],
        "",
    ));
    let rows = "{\"price\": 1.500}\n{\"price\": 1.505}\n";
    let said = refused(&server, &["append", "s", "--format", "json"], rows);
    for part in ["line 2", "column price", "1.505", "decimal(10,2)"] {
        assert!(said.contains(part), "{said}");
    }
    let stored = text(&run(&server, &["fetch", "s", "--json"], ""));
    assert!(stored.is_empty(), "{stored}");
}

#[test]
fn a_read_that_ends_before_it_begins_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s"], ""));
    text(&run(&server, &["append", "s"], "a\nb\nc\n"));
    for (from, to, places) in [
        ("latest", "earliest", "offset 3 to 0"),
        ("latest-1", "latest-2", "offset 2 to 1"),
    ] {
        let said = refused(&server, &["fetch", "s", "--from", from, "--to", to], "");
        assert!(
            said.contains(places) && said.contains("ends before it begins"),
            "{said}"
        );
    }
    let said = refused(&server, &["fetch", "s", "--from", "4", "--to", "latest-2"], "");
    assert!(
        said.contains("offset 4 is beyond the end of the stream, which is 3"),
        "{said}"
    );
}

#[test]
fn benchmarks_report_what_they_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let append = [
        "bench",
        "append",
        "--records",
        "2000",
        "--batch",
        "10",
        "--streams",
        "2",
        "--json",
    ];
    let report: serde_json::Value = serde_json::from_str(&text(&run(&server, &append, ""))).unwrap();
    assert_eq!(report["records"], 2_000);
    assert!(report["records_per_s"].as_f64().unwrap() > 0.0 && report["p50_us"].as_u64().unwrap() > 0);
    for api in ["await", "writer"] {
        let append = [
            "bench",
            "append",
            "--records",
            "1000",
            "--batch",
            "5",
            "--api",
            api,
            "--json",
        ];
        let report: serde_json::Value = serde_json::from_str(&text(&run(&server, &append, ""))).unwrap();
        assert_eq!((&report["records"], &report["api"]), (&1_000.into(), &api.into()));
    }
    let fetch = run(&server, &["bench", "fetch", "--decode", "--json"], "");
    let report: serde_json::Value = serde_json::from_str(&text(&fetch)).unwrap();
    assert_eq!(
        (&report["records"], &report["rows_decoded"]),
        (&4_000.into(), &4_000.into())
    );
}

#[test]
fn help_teaches() {
    let help = text(&sbp(&["--help"]).output().unwrap());
    assert!(
        help.contains("Examples:") && help.contains("sbp serve --data-dir"),
        "{help}"
    );
}
