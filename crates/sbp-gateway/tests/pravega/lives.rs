//! Servers and gateways that end while clients write.

use std::time::Duration;

use sbp_e2e::clients::{client, contents};
use sbp_e2e::process::{Lasting, Setup};
use sbp_e2e::wait::{LIMIT, bounded, bounded_by};
use sbp_gateway::pravega::{PravegaConfig, PravegaServer};

use super::{event, peer, pravega, read_all, stream};

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_there_once_though_service_and_gateway_end_amid_appends() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Lasting::start(Setup::new(dir.path()));
    let client = client(server.address());
    let mut gateway = pravega(&client);
    let address = gateway.address().to_string();
    let peer = peer(&gateway);
    let stream = stream("sc/st");
    bounded(peer.create_stream(&stream, 1)).await.unwrap();
    let writer = bounded(peer.writer(&stream)).await.unwrap();
    let writing = tokio::spawn(async move {
        let mut next = 0;
        for round in 0..60 {
            let events = (0..=round % 5)
                .map(|more| event((next + more).to_string(), None))
                .collect();
            writer.append(events).await.unwrap();
            next += round % 5 + 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        writer.close().await;
        next
    });
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        if round % 2 == 0 {
            server.kill();
            server.restart();
        } else {
            gateway.close().await;
            let config = PravegaConfig::new(&address);
            let again = async {
                loop {
                    // The port may be taken for a moment.
                    match PravegaServer::start(&client, &config) {
                        Ok(gateway) => break gateway,
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            };
            gateway = bounded(again).await;
        }
    }
    let written = bounded_by(2 * LIMIT, writing).await.unwrap();
    let expected: Vec<_> = (0..written).map(|number| number.to_string()).collect();
    let read: Vec<_> = bounded(read_all(&peer, &stream)).await;
    assert_eq!(
        read.into_iter().map(|(_, content)| content).collect::<Vec<_>>(),
        expected
    );
    let id = client.find_stream("sc/st/0", None).await.unwrap().stream_id;
    let records = contents(&client, id).await.into_iter().map(|(_, value)| value);
    assert_eq!(records.collect::<Vec<_>>(), expected);
    peer.close().await;
    gateway.close().await;
    client.close().await;
}
