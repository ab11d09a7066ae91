//! Clients of Pravega with `sbp serve --pravega-listen` and `sbp gateway`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::Signal;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::bounded;
use sbp_peers::pravega::{NewEvent, Pravega, PravegaConfig, StreamName};

use super::{run, sbp, serve, text};

/// Writes an event to the stream `sc/st`, which is made where it is not there.
fn write(address: &str, content: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let event = NewEvent {
        content: content.to_owned().into(),
        key: None,
    };
    runtime.block_on(async {
        let peer = Pravega::direct(address, PravegaConfig::default(), runtime.handle().clone());
        let stream = StreamName::parse("sc/st").unwrap();
        // It may be there.
        drop(peer.create_stream(&stream, 1).await);
        let writer = peer.writer(&stream).await.unwrap();
        writer.append(vec![event]).await.unwrap();
        writer.close().await;
        peer.close().await;
    });
}

#[test]
fn a_client_of_pravega_writes_to_a_server_s_streams() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "serve",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
        "--pravega-listen",
        &listen,
        "--data-dir",
    ];
    let start = || Serving::spawn(sbp(&arguments).arg(dir.path()));
    let mut server = start();
    write(&listen, "a");
    server.end(Signal::KILL);
    server = start();
    write(&listen, "b");
    assert_eq!(
        text(&run(&server, &["fetch", "sc/st/0", "--format", "raw"], "")),
        "a\nb\n"
    );
    server.end_and_read();
}

#[test]
fn a_gateway_serves_clients_of_pravega() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let mut gateway = sbp(&["gateway", "--log", "warn", "--servers", &server.address]);
    let listen = ["--pravega-listen", "127.0.0.1:0"];
    let mut gateway = gateway.args(listen).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let line = printed.next().unwrap().unwrap();
    write(line.strip_prefix("Pravega on ").unwrap(), "x");
    rustix::process::kill_process(rustix::process::Pid::from_child(&gateway), Signal::TERM).unwrap();
    assert!(gateway.wait().unwrap().success());
    assert_eq!(text(&run(&server, &["fetch", "sc/st/0", "--format", "raw"], "")), "x\n");
}

/// Asks the controller at this address for a stream, whose segment is then looked for where it says.
async fn look_for_a_segment(controller: &str) {
    let peer = Pravega::new(controller, PravegaConfig::default(), tokio::runtime::Handle::current()).unwrap();
    let stream = StreamName::parse("sc/st").unwrap();
    peer.create_scope("sc").await.unwrap();
    peer.create_stream(&stream, 1).await.unwrap();
    let owned = peer.current_segments(&stream).await.unwrap().remove(0);
    // Nobody answers there.
    drop(peer.segment_info(&owned.segment).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_pravega_are_sent_where_it_is_said() {
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let mut gateway = sbp(&["gateway", "--log", "warn", "--servers", &server.address]);
    gateway.args(["--pravega-listen", "127.0.0.1:0", "--pravega-advertise"]);
    gateway.arg(elsewhere.local_addr().unwrap().to_string());
    let mut gateway = gateway.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let line = printed.next().unwrap().unwrap();
    let controller = line.strip_prefix("Pravega on ").unwrap();
    bounded(async {
        tokio::select! {
            reached = elsewhere.accept() => drop(reached.unwrap()),
            () = look_for_a_segment(controller) => panic!("the segment was looked for elsewhere"),
        }
    })
    .await;
    rustix::process::kill_process(rustix::process::Pid::from_child(&gateway), Signal::TERM).unwrap();
    assert!(gateway.wait().unwrap().success());
}
