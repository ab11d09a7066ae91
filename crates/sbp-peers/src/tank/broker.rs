//! A broker, as its client's users see it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_tank::{
    Answer, ClientConfig, Connection, ConsumedFrom, PartitionBounds, Produce, Produced, ProducedTo, Request, Topic,
    TopicSummary,
};
use sbp_transport::{ChannelOwner, DialError, ReconnectingChannel};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::connection::BrokerConnection;
use super::error::{TankError, TankErrorKind};
use super::shared::{Call, Ended, Fetched, Queue, Shared};

/// How often a request that changes nothing, or was not sent, is sent at most.
const ATTEMPTS: usize = 3;

/// How a broker is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerConfig {
    /// How long dialling may take.
    pub connect_timeout: Duration,
    /// How long the broker may take to greet, and to answer.
    pub client: ClientConfig,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            client: ClientConfig::default(),
        }
    }
}

/// A client of one broker; clones share its connection. It connects when there is something to ask, and again when its connection is lost.
#[derive(Debug, Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

impl Broker {
    /// A client of the broker at `address`, which is `host:port`. Its tasks run on `runtime`.
    #[must_use]
    pub fn new(address: &str, config: BrokerConfig, runtime: Handle) -> Self {
        Self {
            shared: Shared::new(address, config.connect_timeout, config.client, runtime),
        }
    }

    /// Where the broker is.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.name()
    }

    /// Whether there is a connection. There is none before the first call, and after the broker or this side has closed one
    /// that was idle; the next call makes one.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected()
    }

    /// Has the broker store a bundle, as [`sbp_tank::encode_bundle`] makes it.
    ///
    /// # Errors
    /// [`TankError`]. Where it is not [certain](TankError::is_certain) that nothing was done, the messages may be stored.
    pub async fn produce(&self, topic: &str, partition: u16, bundle: Bytes) -> Result<(), TankError> {
        let to = ProducedTo {
            partition,
            first: 0,
            bundle,
        };
        let request = Request::Produce(Produce {
            topics: vec![Topic {
                name: topic.to_owned(),
                partitions: vec![to],
            }],
            is_numbered: false,
            acks: 0,
            ack_timeout_ms: 0,
        });
        let outcome = match self.ask(request, false).await? {
            Answer::Produced(outcomes) => outcomes.into_iter().flatten().next(),
            other => return Err(self.odd(&other)),
        };
        let kind = match outcome {
            Some(Produced::Done) => return Ok(()),
            Some(Produced::UnknownTopic | Produced::UnknownPartition) => TankErrorKind::UnknownName,
            _ => TankErrorKind::Refused,
        };
        let what = outcome.map_or_else(String::new, |outcome| outcome.to_string());
        let error = TankError::new(
            kind,
            format!("produce to {topic}/{partition} at {}: {what}", self.address()),
        );
        Err(match outcome {
            // Some brokers may have it.
            Some(Produced::Late | Produced::Replicas) => error.perhaps_done(),
            _ => error,
        })
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// [`TankError`].
    pub async fn create_topic(&self, topic: &str, partitions: u16) -> Result<(), TankError> {
        let request = Request::CreateTopic {
            topic: topic.to_owned(),
            partitions,
            config: Bytes::new(),
        };
        let why = match self.ask(request, false).await? {
            Answer::Created { code: 0, .. } => return Ok(()),
            Answer::Created { code: 1, .. } => String::from("it exists"),
            Answer::Created { code: 10, .. } => String::from("its name or number of partitions cannot be"),
            Answer::Created { code, .. } => format!("the broker says code {code}"),
            other => return Err(self.odd(&other)),
        };
        let message = format!("topic {topic} was not made at {}: {why}", self.address());
        Err(TankError::new(TankErrorKind::Refused, message))
    }

    /// The topics there are.
    ///
    /// # Errors
    /// [`TankError`].
    pub async fn topics(&self) -> Result<Vec<TopicSummary>, TankError> {
        match self.ask(Request::DiscoverTopics, true).await? {
            Answer::Topics(topics) => Ok(topics),
            other => Err(self.odd(&other)),
        }
    }

    /// Where the partitions of a topic begin and end, from partition 0 on; `None` for one that this broker does not serve.
    ///
    /// # Errors
    /// [`TankError`].
    pub async fn partitions(&self, topic: &str) -> Result<Vec<Option<PartitionBounds>>, TankError> {
        let request = Request::DiscoverPartitions {
            topic: topic.to_owned(),
        };
        let partitions = match self.ask(request, true).await? {
            Answer::Partitions { partitions, .. } => partitions,
            other => return Err(self.odd(&other)),
        };
        if partitions.is_empty() {
            let message = format!("the broker at {} has no topic {topic}", self.address());
            return Err(TankError::new(TankErrorKind::UnknownName, message));
        }
        Ok(partitions)
    }

    /// Ends the connection, and waits until it is over.
    pub async fn close(&self) {
        self.shared.close();
        self.shared.wait_closed().await;
    }

    pub(super) async fn consume(
        &self,
        topic: &str,
        from: Vec<ConsumedFrom>,
        wait: Duration,
    ) -> Result<Fetched, TankError> {
        let request = Request::Consume {
            topics: vec![Topic {
                name: topic.to_owned(),
                partitions: from,
            }],
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            min_bytes: 1,
        };
        match self.call(request, true).await? {
            Ended::Fetched(fetched) => Ok(fetched),
            _ => Err(TankError::new(
                TankErrorKind::Peer,
                format!("the broker at {} answers something else", self.address()),
            )),
        }
    }

    async fn ask(&self, request: Request, is_repeatable: bool) -> Result<Answer, TankError> {
        match self.call(request, is_repeatable).await? {
            Ended::Answered(answer) => Ok(answer),
            _ => Err(TankError::new(
                TankErrorKind::Peer,
                format!("the broker at {} answers something else", self.address()),
            )),
        }
    }

    /// Sends a request until it is answered, as long as that cannot do it twice.
    async fn call(&self, request: Request, is_repeatable: bool) -> Result<Ended, TankError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (reply, ended) = oneshot::channel();
            self.shared.submit(Call {
                request: request.clone(),
                reply,
            });
            let (why, bytes_sent) = match ended.await {
                Ok(Ended::Lost { why, bytes_sent }) => (why, bytes_sent),
                Ok(Ended::Unfit(why)) => return Err(TankError::new(TankErrorKind::Limit, why)),
                Ok(ended) => return Ok(ended),
                Err(_) => (String::from("the client was closed"), true),
            };
            // Only a connection that was lost is worth another one at once: one that was not made is not made now either.
            let again = bytes_sent && is_repeatable;
            if again && attempts < ATTEMPTS {
                continue;
            }
            let error = TankError::new(TankErrorKind::Lost, format!("the broker at {}: {why}", self.address()));
            return Err(match bytes_sent && !is_repeatable {
                true => error.perhaps_done(),
                false => error,
            });
        }
    }

    fn odd(&self, answer: &Answer) -> TankError {
        let message = format!("the broker at {} answers something else: {answer:?}", self.address());
        TankError::new(TankErrorKind::Peer, message)
    }
}

impl ChannelOwner for Shared {
    type Queue = Queue;
    type Connection = BrokerConnection;

    fn channel(&self) -> &ReconnectingChannel<Queue> {
        &self.channel
    }

    fn endpoint(&self, now: Instant) -> Connection {
        Connection::client(self.client, now)
    }

    fn connection(self: Arc<Self>, _address: &Arc<str>, generation: u64) -> BrokerConnection {
        BrokerConnection::new(self, generation)
    }

    fn dial_failed(self: &Arc<Self>, error: &DialError) {
        self.give_up_waiting(error);
    }
}
