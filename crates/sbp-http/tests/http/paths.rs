//! The paths, and what they say in each phase of a server's life.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use sbp_e2e::admin::delete;
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::{config, quick_config};
use sbp_frame::OpCode;
use sbp_http::{HttpConfig, HttpServer, ObservedServer};
use sbp_server::{Monitor, ServerConfig, StartError};
use sbp_sim::{Operation, SimFileSystem};

use super::{anywhere, ask, ask_as, connect, get, metric, start, status, until};

#[test]
fn every_path_answers_and_says_what_browsers_may_do() {
    let server = start(quick_config(None, "127.0.0.1:0"));
    for (path, media_type, part) in [
        ("/", "text/html", "<title>sbp</title>"),
        ("/style.css", "text/css", "prefers-color-scheme: dark"),
        ("/script.js", "text/javascript", "use strict"),
        ("/icon.svg", "image/svg+xml", "<svg"),
        ("/metrics", "application/openmetrics-text", "# EOF"),
        ("/health/live", "text/plain", "alive"),
        ("/health/ready", "application/json", "\"ready\":true"),
        ("/status.json", "application/json", "\"phase\":\"serving\""),
    ] {
        let answer = ask(&server, path);
        assert_eq!(answer.code, 200, "{path}");
        assert!(
            answer.head.contains(&format!("content-type: {media_type}")),
            "{path}: {}",
            answer.head
        );
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
        assert!(
            answer
                .head
                .contains("content-security-policy: default-src 'none'; script-src 'self'")
        );
        assert!(answer.head.contains("x-content-type-options: nosniff"));
        assert!(!answer.head.contains("unsafe-inline"), "{path}");
    }
    assert_eq!(ask(&server, "/nothing").code, 404);
    assert_eq!(ask(&server, "/status.json?limit=many").code, 400);
    let search = "a".repeat(256);
    assert_eq!(ask(&server, &format!("/status.json?search={search}")).code, 400);
}

/// Sends a request as it stands, with the end of its head, and reads all that comes.
fn send(server: &ObservedServer, head: &str) -> String {
    let mut stream = connect(server.http_addr().unwrap());
    write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.to_lowercase()
}

#[test]
fn what_is_not_asked_by_get_has_the_same_headers_and_no_body() {
    let server = start(quick_config(None, "127.0.0.1:0"));
    for path in ["/", "/metrics", "/status.json", "/health/live", "/health/ready"] {
        let head = send(&server, &format!("HEAD {path} HTTP/1.1\r\nHost: localhost"));
        assert!(
            head.starts_with("http/1.1 200") && head.ends_with("\r\n\r\n"),
            "{path}: {head}"
        );
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            let refused = send(
                &server,
                &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0"),
            );
            assert!(refused.starts_with("http/1.1 405"), "{method} {path}: {refused}");
            assert!(refused.contains("\r\nallow: get,head\r\n"), "{refused}");
            assert!(
                refused.contains("content-security-policy: default-src 'none'"),
                "{refused}"
            );
            assert!(!refused.contains("access-control-allow"), "{refused}");
        }
    }
    let nothing = send(&server, "GET /../etc/passwd HTTP/1.1\r\nHost: localhost");
    assert!(
        nothing.starts_with("http/1.1 404") && nothing.contains("nosniff"),
        "{nothing}"
    );
    let nobody = send(&server, "GET /status.json HTTP/1.1\r\nHost: evil.example");
    assert!(
        nobody.starts_with("http/1.1 421") && nobody.contains("cache-control: no-store"),
        "{nobody}"
    );
    assert!(
        send(&server, "GET / HTTP/1.0").starts_with("http/1.0 421"),
        "asked by no name"
    );
}

#[test]
fn a_name_that_no_request_can_have_is_refused_at_start() {
    let http = HttpConfig {
        hosts: vec!["status.example.com".to_owned(), "https://status.example.com".to_owned()],
        ..anywhere()
    };
    let refused = HttpServer::start(&http, &ServerConfig::default())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("\"https://status.example.com\" cannot be a name"),
        "{refused}"
    );
    assert!(refused.contains("--http-host"), "{refused}");
}

#[test]
fn cursors_that_somebody_else_writes_cost_little_and_are_no_text_of_his() {
    let server = start(config(None));
    let mut peer = Peer::connect(&server);
    let [large, many, named] = ["large", "many", "named"].map(|name| peer.create(&format!("_sbp/cursors/{name}")));
    let place = |name: &str| format!(r#"{{"stream": 1, "next": 0, "name": "{name}"}}"#);
    let commit = |places: &[String]| format!(r#"{{"positions": [{}]}}"#, places.join(",")).into_bytes();
    peer.store(large, &commit(&vec![place(&"a".repeat(200)); 10_000]));
    peer.store(many, &commit(&vec![place("orders"); 1_000]));
    peer.store(named, &commit(&[place("<script>")]));
    let now = status(&server);
    let cursors = now["server"]["streams"]["cursors"].as_array().unwrap();
    assert_eq!(cursors.len(), 200);
    assert!(
        cursors
            .iter()
            .all(|cursor| cursor["name"] == "many" && cursor["stream_name"] == "orders"),
        "{now}"
    );
    delete(&mut peer, many);
    until("its end", || {
        status(&server)["server"]["streams"]["cursors"]
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    let cursor = status(&server)["server"]["streams"]["cursors"][0].clone();
    assert_eq!((&cursor["name"], &cursor["stream_name"]), (&"named".into(), &"".into()));
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_text() {
    let files = [
        include_str!("../../src/page/index.html"),
        include_str!("../../src/page/style.css"),
        include_str!("../../src/page/script.js"),
    ];
    for file in files {
        let text = file.replace("http://www.w3.org/2000/svg", "");
        for other in [
            "http:",
            "https:",
            "//cdn",
            "@import",
            "url(",
            "innerHTML =",
            "outerHTML",
            "insertAdjacent",
            "eval(",
        ] {
            assert!(!text.contains(other), "{other}");
        }
        assert!(
            !text.contains("style=\"") && !text.contains("onclick=\""),
            "nothing inline"
        );
    }
}

#[test]
fn a_page_of_others_cannot_ask_a_server_on_loopback() {
    let server = start(quick_config(None, "127.0.0.1:0"));
    let address = server.http_addr().unwrap();
    assert_eq!(ask_as(address, "evil.example", "/status.json").code, 421);
    assert_eq!(ask_as(address, "localhost:1", "/status.json").code, 200);
    let http = HttpConfig {
        hosts: vec!["status.example".to_owned()],
        ..anywhere()
    };
    let server = ObservedServer::start(quick_config(None, "127.0.0.1:0"), Some(&http)).unwrap();
    let address = server.http_addr().unwrap();
    assert_eq!(ask_as(address, "evil.example", "/status.json").code, 421);
    assert_eq!(ask_as(address, "status.example:443", "/status.json").code, 200);
}

#[test]
fn an_address_that_others_can_reach_is_refused_and_a_taken_one_too() {
    let mut http = anywhere();
    http.listen = "0.0.0.0:0".to_owned();
    let refused = HttpServer::start(&http, &ServerConfig::default());
    assert!(matches!(refused, Err(StartError::InsecureListen { .. })), "{refused:?}");
    http.insecure_listen = true;
    let listener = HttpServer::start(&http, &ServerConfig::default()).unwrap();
    http.listen = listener.local_addr().to_string();
    let refused = ObservedServer::start(ServerConfig::default(), Some(&http));
    assert!(matches!(refused, Err(StartError::PortTaken { .. })), "{refused:?}");
}

#[test]
fn a_server_is_ready_once_it_has_recovered_and_until_it_drains() {
    let disk = SimFileSystem::new();
    let monitor = Monitor::default();
    let config = ServerConfig {
        files: Some(Arc::new(disk.clone())),
        monitor: monitor.clone(),
        segment_bytes: Some(1 << 20),
        ..config(Some(Path::new("/data")))
    };
    let held = disk.hold(Operation::Sync, "");
    let mut http = anywhere();
    // The port has to be known before the start returns.
    let free = HttpServer::start(&http, &ServerConfig::default()).unwrap().local_addr();
    http.listen = free.to_string();
    let starting = std::thread::spawn(move || ObservedServer::start(config, Some(&http)).unwrap());
    held.wait_until_reached();
    let ready = get(free, "/health/ready");
    assert_eq!(ready.code, 503);
    assert_eq!(ready.json()["phase"], "recovering");
    assert_eq!(get(free, "/health/live").code, 200);
    assert!(get(free, "/status.json").json()["server"].is_null());
    let metrics = get(free, "/metrics").body;
    assert!(
        metrics.contains("sbp_ready 0\n") && metrics.contains("sbp_recovering 1\n"),
        "{metrics}"
    );
    drop(held);
    let server = starting.join().unwrap();
    assert_eq!(get(free, "/health/ready").code, 200);

    // A read that waits keeps the server draining until it has its answer.
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let held = disk.hold(Operation::Sync, "segment-");
    let batch = raw_batch(b"last");
    peer.send(&append_request(&[(stream, batch.len())]), &batch);
    held.wait_until_reached();
    let server = Arc::new(server);
    let closing = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.shutdown().unwrap()
    });
    until("draining", || get(free, "/health/ready").json()["phase"] == "draining");
    let ready = get(free, "/health/ready");
    assert_eq!(ready.code, 503);
    assert!(get(free, "/metrics").body.contains("sbp_draining 1\n"));
    drop(held);
    closing.join().unwrap();
    let ended = get(free, "/health/ready");
    assert_eq!((ended.code, ended.json()["phase"].as_str()), (503, Some("ended")));
    drop(server);
    assert!(std::net::TcpStream::connect(free).is_err(), "the listener is joined");
}

#[test]
fn what_is_appended_and_fetched_is_counted() {
    let server = start(config(None));
    let mut peer = Peer::connect(&server);
    let orders = peer.create("shop/orders");
    peer.create("other");
    for n in 0..5 {
        assert_eq!(peer.store(orders, b"0123456789"), n);
    }
    assert_eq!(peer.fetch_all(orders, 0).len(), 5);
    let now = status(&server);
    let counts = &now["server"]["counts"];
    assert_eq!((&counts["appends"], &counts["append_records"]), (&5.into(), &5.into()));
    assert_eq!(now["server"]["latencies"]["append"]["count"], 5);
    assert!(now["server"]["latencies"]["sync"]["count"].as_u64().unwrap() >= 5);
    assert_eq!(now["server"]["latencies"]["metadata"]["count"], 2);
    let fetched = now["server"]["latencies"]["fetch"]["count"].as_u64().unwrap();
    assert!(fetched >= 1, "{now}");
    assert!(metric(&server, "sbp_append_bytes_total") > 50.0);
    assert!((metric(&server, "sbp_append_records_total") - 5.0).abs() < f64::EPSILON);
    assert!((metric(&server, "sbp_append_seconds_bucket{le=\"+Inf\"}") - 5.0).abs() < f64::EPSILON);
    assert!(metric(&server, "sbp_append_seconds_sum") > 0.0);
    let label = format!("sbp_stream_end_offset{{stream=\"{orders}\",name=\"shop/orders\"}}");
    assert!((metric(&server, &label) - 5.0).abs() < f64::EPSILON);

    let found = ask(&server, "/status.json?search=SHOP%2F&limit=7").json();
    let streams = &found["server"]["streams"];
    assert_eq!(
        (streams["matched"].as_u64(), streams["list"][0]["name"].as_str()),
        (Some(1), Some("shop/orders"))
    );
    assert_eq!(streams["list"][0]["end"], 5);
    let detail = ask(&server, &format!("/status.json?stream={orders}")).json();
    let stream = &detail["server"]["stream"];
    assert_eq!(stream["range_list"][0]["state"], "open");
    assert_eq!(stream["range_list"][0]["replicas"][0]["up"], true);
    assert_eq!(stream["end"], 5);
}

#[test]
fn what_a_waiting_fetch_is_given_is_counted_end_to_end() {
    let server = start(config(None));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let mut tail = Peer::connect(&server);
    let fetch = tail.send(&fetch_request(20_000, 1, &[from(stream, 0)]), b"");
    let ping = tail.send_raw(OpCode::PING, b"", b"");
    assert_eq!(tail.recv().call_id, ping, "the fetch waits");
    peer.store(stream, b"first");
    assert_eq!(tail.recv().call_id, fetch);
    until("the fetch", || {
        status(&server)["server"]["latencies"]["end_to_end"]["count"] == 1
    });
}
