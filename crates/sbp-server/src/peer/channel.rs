//! The lasting end of a connection that comes and goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sbp_frame::{Frame, PayloadPart};
use sbp_messages::{Encoder, Message};
use sbp_session::{Session, SessionConfig};
use sbp_transport::{ChannelOwner, Descriptors, ReconnectingChannel};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

use super::call::{Call, Ended};
use super::connection::PeerConnection;
use super::error::PeerError;
use super::shared::{PeerConfig, PeerQueue, Shared};

/// The most requests that a peer has not answered, those among them for whose answers nobody waits any more. The others wait
/// here, where they can still be taken back. At 1,024 the peer would stop reading, and not see what keeps the connection alive.
pub(super) const MOST_CALLS: usize = 1_000;

/// A way to a peer. Dropping it, or closing it, ends its connection.
#[derive(Debug)]
pub(crate) struct PeerChannel {
    pub(super) shared: Arc<Shared>,
}

impl PeerChannel {
    /// A channel whose tasks run on `runtime`. It dials when there is something to say, or at once where it `stays`.
    pub(crate) fn new(config: PeerConfig, runtime: Handle, descriptors: Arc<Descriptors>) -> Self {
        Self {
            shared: Shared::new(config, runtime, descriptors),
        }
    }

    /// A channel of its own to another peer, which is told the same, and at once.
    pub(crate) fn to(&self, address: &str) -> Self {
        let config = PeerConfig {
            addresses: vec![address.to_owned()],
            stays: true,
            ..self.shared.config.clone()
        };
        let channel = &self.shared.channel;
        Self::new(config, channel.runtime().clone(), Arc::clone(&channel.links().sockets))
    }

    /// Asks the peer, and waits for all frames of its answer. Sent again on another connection when one is lost, so only
    /// for requests that may be carried out twice.
    pub(crate) async fn call<Q: Message, A: Message>(
        &self,
        request: &Q,
        timeout: Duration,
    ) -> Result<Vec<A>, PeerError> {
        let frames = self.call_for_frames(request, timeout).await?;
        let answers = frames.iter().map(|frame| A::decode(&frame.header));
        answers
            .collect::<Result<_, _>>()
            .map_err(|error| PeerError::undecodable(&self.shared.channel.name(), &error))
    }

    /// As [`call`](Self::call), but returns the answer's frames with what they carry.
    pub(crate) async fn call_for_frames<Q: Message>(
        &self,
        request: &Q,
        timeout: Duration,
    ) -> Result<Vec<Frame>, PeerError> {
        let deadline = Instant::now() + timeout;
        let mut header = BytesMut::new();
        request.encode(&mut Encoder::new(), &mut header);
        let header = header.freeze();
        let peer = || self.shared.channel.name();
        loop {
            let (reply, answer) = oneshot::channel();
            self.shared.submit(Call {
                opcode: Q::OPCODE,
                header: header.clone(),
                payload: Vec::new(),
                deadline,
                reply,
            })?;
            match timeout_at(deadline.into(), answer).await {
                Ok(Ok(Ended::Answered(frames))) => return Ok(frames),
                Ok(Ok(Ended::Refused(status))) => return Err(PeerError::Refused { peer: peer(), status }),
                Ok(Ok(Ended::Unusable(what))) => return Err(PeerError::Unusable { peer: peer(), what }),
                // The next one waits until there is a connection again.
                Ok(Ok(Ended::Lost(reason))) if Instant::now() < deadline => {
                    self.shared.note_failure(reason);
                    continue;
                }
                Ok(Ok(Ended::Closed) | Err(_)) => return Err(PeerError::Closed),
                Ok(Ok(Ended::Lost(_))) | Err(_) => {
                    return Err(PeerError::TimedOut {
                        peer: peer(),
                        waited: timeout,
                        last: self.shared.last_failure(),
                    });
                }
            }
        }
    }

    /// Asks the peer once: the request is lost with the connection that it is sent over. It is given to the connection before
    /// this returns, so that requests arrive in the order of these calls.
    pub(crate) fn call_once<Q: Message, A: Message>(
        &self,
        request: &Q,
        payload: Vec<Bytes>,
        timeout: Duration,
    ) -> impl Future<Output = Result<A, PeerError>> + use<Q, A> {
        let mut header = BytesMut::new();
        request.encode(&mut Encoder::new(), &mut header);
        let (reply, answer) = oneshot::channel();
        let submitted = self.shared.submit(Call {
            opcode: Q::OPCODE,
            header: header.freeze(),
            payload: payload.into_iter().map(PayloadPart::Share).collect(),
            deadline: Instant::now() + timeout,
            reply,
        });
        let shared = Arc::clone(&self.shared);
        async move {
            submitted?;
            let peer = || shared.channel.name();
            let lost = |last| PeerError::TimedOut {
                peer: peer(),
                waited: timeout,
                last,
            };
            match timeout_at((Instant::now() + timeout).into(), answer).await {
                Ok(Ok(Ended::Answered(frames))) => {
                    let Some(frame) = frames.last() else {
                        return Err(lost(None));
                    };
                    A::decode(&frame.header).map_err(|error| PeerError::undecodable(&peer(), &error))
                }
                Ok(Ok(Ended::Refused(status))) => Err(PeerError::Refused { peer: peer(), status }),
                Ok(Ok(Ended::Unusable(what))) => Err(PeerError::Unusable { peer: peer(), what }),
                Ok(Ok(Ended::Lost(reason))) => Err(lost(Some(reason))),
                Ok(Ok(Ended::Closed) | Err(_)) => Err(PeerError::Closed),
                Err(_) => Err(lost(shared.last_failure())),
            }
        }
    }

    /// Tells of each further connection on which the peer answers: the number grows with every one. Whether there is one now
    /// says [`standing`](Self::standing).
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        self.shared.greeted.subscribe()
    }

    /// For how long nothing was heard of the peer.
    pub(crate) fn silence(&self) -> Duration {
        self.shared.silence()
    }

    /// Whether there is a connection on which the peer answers.
    pub(crate) fn is_connected(&self) -> bool {
        self.standing() != 0
    }

    /// The number of the connection on which the peer answers now; 0: there is none.
    pub(crate) fn standing(&self) -> u64 {
        self.shared.standing()
    }

    /// What the peer is called in messages.
    pub(crate) fn name(&self) -> String {
        self.shared.channel.name()
    }

    /// What went wrong last, if a connection was lost or not made.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.shared.last_failure()
    }

    /// Ends the connection after what was asked is answered; what waits for one is told.
    pub(crate) fn close(&self) {
        self.shared.close();
    }
}

impl Drop for PeerChannel {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl ChannelOwner for Shared {
    type Queue = PeerQueue;
    type Connection = PeerConnection;

    fn channel(&self) -> &ReconnectingChannel<PeerQueue> {
        &self.channel
    }

    fn endpoint(&self, now: Instant) -> Session {
        let mut config = SessionConfig::client();
        config.heartbeat_interval = self.config.heartbeat_interval;
        config.limits.own_calls = MOST_CALLS;
        Session::new(config, now)
    }

    fn connection(self: Arc<Self>, address: &Arc<str>, generation: u64) -> PeerConnection {
        PeerConnection::new(self, Arc::clone(address), generation)
    }
}
