//! Servers that are killed while clients produce and consume.

use std::io::{BufRead, BufReader};
use std::process::Child;

use sbp_e2e::clients::{client, contents};
use sbp_e2e::process::{Lasting, Setup};
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_peers::tank::{End, ReadOptions, Start};

use super::{broker, python, tank};

/// The numbers that the client in Python was acknowledged, as they come.
fn acknowledged(child: &mut Child) -> std::sync::mpsc::Receiver<u64> {
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if sender.send(line.parse().unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_once_though_the_service_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Lasting::start(Setup::new(dir.path()));
    let client = client(server.address());
    let tank = tank(&client);
    let reader = broker(&tank);
    reader.create_topic("t", 1).await.unwrap();
    let options = ReadOptions {
        partitions: vec![0],
        start: Start::Earliest,
        end: End::Never,
    };
    let mut reader = reader.read("t", &options).await.unwrap();
    let mut child = python(&[&tank.address().port().to_string(), "2", "--produce", "t"])
        .spawn()
        .unwrap();
    let acks = acknowledged(&mut child);
    let mut last = 0;
    for round in 1..=5 {
        // The broker waits for the service meanwhile, and its clients for the broker.
        while last < round * 30 {
            last = acks.recv_timeout(LIMIT).unwrap();
        }
        server.kill();
        server.restart();
    }
    while last < 180 {
        last = acks.recv_timeout(LIMIT).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // A reader that followed has every message once, and so has the stream.
    let mut next = 0;
    let follow = async {
        while next <= last {
            let Ok(bundle) = reader.next().await else { continue };
            let take = |message: sbp_tank::Message<'_>| {
                assert_eq!(message.content, next.to_string().as_bytes());
                assert_eq!(message.sequence, next + 1);
                next += 1;
            };
            bundle.unwrap().for_each(take).unwrap();
        }
    };
    bounded_by(LIMIT, follow).await;
    let stream = client.find_stream("t/0", None).await.unwrap().stream_id;
    let all = contents(&client, stream).await;
    for (place, (_, value)) in all.iter().enumerate() {
        assert_eq!(*value, place.to_string());
    }
    tank.close().await;
    client.close().await;
}
