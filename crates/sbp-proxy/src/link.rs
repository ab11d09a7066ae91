//! One connection through the proxy.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use sbp_transport::dial;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::Direction;
use crate::pump::{Ended, pump};
use crate::relay::Relay;
use crate::shared::Shared;

/// How connections are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutting {
    /// They are closed, as by a process that ends.
    Close,
    /// They are reset, as by a machine that does not know them any more: what was sent and not yet read is lost.
    Reset,
}

/// Connects a client to the target and passes on the bytes of both, until both have ended or the connection is cut.
pub(crate) async fn run(mut client: TcpStream, number: u64, shared: Arc<Shared>, mut cut: watch::Receiver<Cutting>) {
    let Some(mut server) = connect(&shared).await else {
        shared.counts.lock().refused += 1;
        return;
    };
    // A forked child closes the descriptors that it inherits and that are listed. They leave the list before the sockets
    // close, because the number of a closed descriptor can be that of another file at once: the sockets are declared
    // before this, and the two directions only borrow them.
    let _registered = (
        shared.descriptors.register(client.as_raw_fd()),
        shared.descriptors.register(server.as_raw_fd()),
    );
    if pass_on(&mut client, &mut server, number, &shared, &mut cut).await == Some(Cutting::Reset) {
        reset(&client);
        reset(&server);
    }
}

/// Passes on the bytes of both until both have ended; says how the connection was cut, if it was.
async fn pass_on(
    client: &mut TcpStream,
    server: &mut TcpStream,
    number: u64,
    shared: &Shared,
    cut: &mut watch::Receiver<Cutting>,
) -> Option<Cutting> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let relay = |direction| Relay::new(number, direction);
    let upwards = pump(from_client, to_server, relay(Direction::ToServer), shared);
    let downwards = pump(from_server, to_client, relay(Direction::ToClient), shared);
    tokio::pin!(upwards, downwards);
    let (mut up_ended, mut down_ended) = (None, None);
    while (up_ended, down_ended) != (Some(Ended::Finished), Some(Ended::Finished)) {
        tokio::select! {
            _ = cut.changed() => return Some(*cut.borrow()),
            ended = &mut upwards, if up_ended.is_none() => up_ended = Some(ended),
            ended = &mut downwards, if down_ended.is_none() => down_ended = Some(ended),
        }
        if up_ended == Some(Ended::Broken) || down_ended == Some(Ended::Broken) {
            return None;
        }
    }
    None
}

/// Has the peer told, when the socket closes, that there is no such connection.
fn reset(socket: &TcpStream) {
    if let Err(error) = SockRef::from(socket).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "a connection is closed instead of reset");
    }
}

async fn connect(shared: &Shared) -> Option<TcpStream> {
    let target = shared.target()?;
    match dial(&target, shared.dial_timeout).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "the target does not accept");
            None
        }
    }
}
