//! Peers that stop for a while and go on: a process that was paused is no attacker.
use std::time::Duration;

use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::start;
use sbp_messages::{FetchResponse, Message};

#[test]
fn a_peer_that_takes_nothing_for_a_while_gets_everything_afterwards() {
    const CALLS: usize = 42;
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, &vec![7; 4 << 20]);
    // 168 MiB are asked for, of which 64 MiB may wait; the server stops reading, so the last requests wait in the pipe.
    for _ in 0..CALLS {
        peer.send(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    }
    std::thread::sleep(Duration::from_secs(4));
    let mut answered = 0;
    while answered < CALLS {
        let frame = peer.recv();
        let results = FetchResponse::decode(&frame.header).unwrap().fetch_responses;
        for result in results {
            assert!(result.status.is_success(), "{}", result.status);
            assert!(result.batch_length > 4 << 20);
            answered += 1;
        }
    }
    assert_eq!(peer.store(stream, b"goes on"), 1);
}
