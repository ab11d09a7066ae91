//! Clients of Seastar RPC with `sbp serve --seastar-listen` and `sbp gateway`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::LIMIT;
use sbp_peers::seastar::{Rpc, RpcConfig};

use super::{run, sbp, serve, text};

const APPEND: u64 = 1001;

/// Appends a record to a stream, and returns its offset.
fn append(address: &str, stream: &str, value: &str) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let length = |text: &str| u32::try_from(text.len()).unwrap().to_le_bytes();
    let mut arguments = [&length(stream)[..], stream.as_bytes(), &1_u32.to_le_bytes()].concat();
    arguments.extend((-1_i64).to_le_bytes());
    arguments.extend(u32::MAX.to_le_bytes());
    arguments.extend(length(value));
    arguments.extend(value.as_bytes());
    let placed = runtime.block_on(async {
        let rpc = Rpc::new(address, RpcConfig::default(), runtime.handle().clone());
        let placed = rpc
            .call(APPEND, arguments.into(), Instant::now() + LIMIT)
            .await
            .unwrap();
        rpc.close().await;
        placed
    });
    i64::from_le_bytes(placed[..8].try_into().unwrap())
}

#[test]
fn a_client_of_seastar_rpc_appends_to_a_server_s_streams() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "serve",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
        "--seastar-listen",
        &listen,
        "--data-dir",
    ];
    let start = || Serving::spawn(sbp(&arguments).arg(dir.path()));
    let mut server = start();
    text(&run(&server, &["stream", "create", "orders"], ""));
    assert_eq!(append(&listen, "orders", "a"), 0);
    server.end(Signal::KILL);
    server = start();
    assert_eq!(append(&listen, "orders", "b"), 1);
    assert_eq!(
        text(&run(&server, &["fetch", "orders", "--format", "raw"], "")),
        "a\nb\n"
    );
    server.end_and_read();
}

#[test]
fn a_gateway_serves_one_protocol_or_both_or_says_how() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s"], ""));
    let listen = ["--tank-listen", "127.0.0.1:0", "--seastar-listen", "127.0.0.1:0"];
    let mut gateway = sbp(&["gateway", "--log", "warn", "--servers", &server.address]);
    let mut gateway = gateway.args(listen).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert!(printed.next().unwrap().unwrap().starts_with("TANK on 127.0.0.1:"));
    let line = printed.next().unwrap().unwrap();
    assert_eq!(append(line.strip_prefix("Seastar RPC on ").unwrap(), "s", "x"), 0);
    rustix::process::kill_process(rustix::process::Pid::from_child(&gateway), Signal::TERM).unwrap();
    assert!(gateway.wait().unwrap().success());
    let nothing = sbp(&["gateway", "--servers", &server.address]).output().unwrap();
    let said = String::from_utf8(nothing.stderr).unwrap();
    assert!(!nothing.status.success() && said.contains("--seastar-listen"), "{said}");
}
