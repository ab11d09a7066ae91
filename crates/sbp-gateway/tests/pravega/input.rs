//! Bytes that no client sends, and clients that are slow.

use std::time::{Duration, Instant};

use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_gateway::pravega::{PravegaConfig, PravegaServer};
use sbp_pravega::ServerConfig;
use sbp_wire::Pace;

use super::pravega;
use super::raw::{NEW, Raw, append, block, end, event, frame, int, long, text};

const SEGMENT: &str = "sc/st/0.#epoch.0";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_ends_its_connection_and_no_other() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut good = Raw::connect(pravega.address()).await;
    assert_eq!(good.create(SEGMENT).await, 21);
    let one = event(b"one");
    let claim = |kind: i32, length: i32| [kind.to_be_bytes(), length.to_be_bytes()].concat();
    let cases = [
        ("an unknown type", frame(6, &[])),
        ("a reply", frame(7, &[0; 64])),
        ("a negative length", claim(9, -1)),
        ("a length over the limit", claim(9, 1 << 24)),
        ("a cut request", frame(9, &text(SEGMENT))),
        ("a writer that was not set up", append(99, &one, 1, 1)),
        ("a block of such a writer", block(99, &one)),
        ("no events", append(1, &one, 0, 1)),
        ("a whole length that is none", end(1, 3, &one, 1, 1)),
        (
            "another writer's end",
            [block(1, &one), end(2, one.len(), &[], 1, 1)].concat(),
        ),
        ("two blocks", [block(1, &one), block(1, &one)].concat()),
    ];
    for (what, bytes) in cases {
        let mut raw = Raw::connect(pravega.address()).await;
        assert_eq!(raw.set_up(1, SEGMENT).await, NEW, "{what}");
        assert_eq!(raw.set_up(2, SEGMENT).await, NEW, "{what}");
        raw.send(&bytes).await;
        raw.is_closed(what).await;
        good.is_served().await;
    }
    // A number that no event can have.
    assert_eq!(good.set_up(1, SEGMENT).await, NEW);
    good.send(&append(1, &one, 1, -2)).await;
    let mut refused = good.answer().await;
    assert_eq!((refused.kind, refused.id(), refused.long()), (55, 1, 3));
    // Ranges of versions that are apart; and none are said at all.
    let mut raw = Raw::silent(pravega.address()).await;
    raw.send(&frame(-127, &[int(4), int(1)].concat())).await;
    assert_eq!(raw.answer().await.kind, -127);
    raw.is_closed("other versions").await;
    let mut raw = Raw::silent(pravega.address()).await;
    let info = frame(11, &[&long(7)[..], &text(SEGMENT), &text("")].concat());
    raw.send(&info).await;
    assert_eq!(raw.answer().await.kind, 12);
    // A table of which nothing is true.
    let payload = [
        &long(1)[..],
        &text(SEGMENT),
        &text(""),
        &int(usize::try_from(i32::MAX).unwrap()),
    ]
    .concat();
    let mut raw = Raw::connect(pravega.address()).await;
    raw.send(&frame(74, &payload)).await;
    raw.is_closed("a count of more than there is").await;
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dribbled_or_cut_ends_its_connection_and_no_other() {
    const MOMENT: Duration = Duration::from_millis(300);
    let server = servers::start(None);
    let client = client(server.address());
    let each = ServerConfig {
        pace: Pace {
            head_timeout: MOMENT,
            ..Pace::default()
        },
        ..ServerConfig::default()
    };
    let pravega = PravegaServer::start_with(&client, &PravegaConfig::new("127.0.0.1:0"), each).unwrap();
    let mut other = Raw::connect(pravega.address()).await;
    for at_once in [1, 7, 9, 12] {
        let mut cut = Raw::connect(pravega.address()).await;
        let begun = Instant::now();
        let request = frame(11, &[&long(7)[..], &text(SEGMENT), &text("")].concat());
        cut.send(&request[..at_once]).await;
        cut.is_closed("a request that is cut").await;
        assert!(begun.elapsed() >= MOMENT, "{at_once}");
        other.is_served().await;
    }
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
