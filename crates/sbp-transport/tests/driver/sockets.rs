//! Making sockets, and how it fails.

use std::time::Duration;

use sbp_transport::{DialError, ListenError, dial, listen};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_taken_port_is_told_as_such() {
    let listener = listen("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let error = listen(&address).expect_err("the port is taken");
    assert!(
        matches!(&error, ListenError::PortTaken { address: named, .. } if *named == address),
        "{error:?}"
    );
    assert!(error.to_string().contains(&address), "{error}");
    drop(listener);
    listen(&address).expect("free again");
}

#[tokio::test]
async fn addresses_that_are_none() {
    for address in [
        "",
        "localhost",
        "127.0.0.1",
        "127.0.0.1:port",
        "127.0.0.1:65536",
        "192.0.2.1:0",
    ] {
        let error = listen(address).expect_err(address);
        assert!(
            matches!(error, ListenError::InvalidAddress { .. }),
            "{address}: {error:?}"
        );
    }
    for address in ["", "localhost", "127.0.0.1", "127.0.0.1:port"] {
        let error = dial(address, PATIENCE).await.expect_err(address);
        assert!(matches!(error, DialError::Resolve { .. }), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let listener = listen("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let error = dial(&address, PATIENCE).await.expect_err("nobody listens");
    let DialError::Connect { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn sockets_do_not_delay() {
    let listener = listen("localhost:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let stream = dial(&address, PATIENCE).await.expect("a connection");
    assert!(stream.nodelay().expect("an option"));
}

#[tokio::test]
async fn no_time_is_no_connection() {
    let error = dial("127.0.0.1:9", Duration::ZERO).await.expect_err("no time");
    assert!(
        matches!(error, DialError::Timeout { .. } | DialError::Connect { .. }),
        "{error:?}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn bytes_that_nobody_acknowledges_end_a_connection() {
    let listener = listen("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let stream = dial(&address, PATIENCE).await.expect("a connection");
    let limit = socket2::SockRef::from(&stream).tcp_user_timeout();
    assert_eq!(limit.expect("an option"), Some(Duration::from_secs(60)));
}
