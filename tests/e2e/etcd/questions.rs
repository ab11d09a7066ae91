//! What is asked of a cluster whose placement drivers share an etcd.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_client::{AppendOptions, Client, ClientError};
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::{LIMIT, until};
use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, PlacementDriverCluster, Stream,
};
use sbp_types::StreamId;

pub(crate) fn described(address: &str) -> PlacementDriverCluster {
    let mut peer = Peer::dial(address);
    let request = DescribePlacementDriverClusterRequest::default();
    let (response, _): (DescribePlacementDriverClusterResponse, _) = peer.call(&request, b"");
    response.cluster.unwrap()
}

/// Which of these placement drivers leads, as it says itself.
pub(crate) fn leader(among: &[String]) -> String {
    until("a leader", || {
        let leads = |address: &&String| {
            let cluster = described(address);
            let is_leader = cluster
                .leader()
                .is_some_and(|leader| leader.advertise_addr == **address);
            is_leader && cluster.range_servers.is_some()
        };
        among.iter().find(leads).cloned()
    })
}

pub(crate) fn stream(name: &str, replicas: i8, acks: i8) -> Stream {
    Stream {
        name: name.to_owned(),
        replica_nums: replicas,
        ack_count: acks,
        ..Stream::default()
    }
}

/// Makes a stream, as soon as there are servers for it.
pub(crate) async fn create(client: &Client, name: &str, replicas: i8, acks: i8) -> StreamId {
    let began = Instant::now();
    loop {
        let made = client.create_streams(vec![stream(name, replicas, acks)], None).await;
        match made.map(|mut made| made.remove(0)) {
            Ok(Ok(made)) => return made.stream_id,
            Ok(Err(error)) | Err(error) => {
                assert!(began.elapsed() < LIMIT && error.is_retriable(), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

pub(crate) async fn append(client: &Client, stream: StreamId, body: String) -> Result<(), ClientError> {
    let options = AppendOptions::default();
    client.append(stream, Bytes::from(body), &options).await.map(drop)
}

pub(crate) async fn names(client: &Client) -> Vec<String> {
    let streams = client.list_streams(None).await.unwrap();
    let mut names: Vec<_> = streams.iter().map(|stream| stream.name.clone()).collect();
    names.sort();
    names
}
