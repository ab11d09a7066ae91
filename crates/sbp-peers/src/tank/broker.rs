//! A broker, as its client's users see it.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_locks::Mutex;
use sbp_tank::{
    Answer, ClientConfig, ConsumedFrom, Discovered, PartitionBounds, Produce, Produced, ProducedTo, Request, Topic,
    TopicSummary,
};
use sbp_transport::Descriptors;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::error::{TankError, TankErrorKind};
use super::shared::{Call, Ended, Fetched, Shared, TankPeer};

/// How often a request that changes nothing, or was not sent, is sent at most.
const ATTEMPTS: usize = 3;
/// Sockets that are remembered for a broker and those it names: the ones in use, and those that end.
const SOCKETS: usize = 64;
/// Topics that are asked for side by side.
const SIDE_BY_SIDE: usize = 64;
/// Brokers that one broker may name.
const LEADERS: usize = 32;

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
/// Where the broker names another one that leads a partition, that one is asked.
#[derive(Debug, Clone)]
pub struct Broker {
    shared: Arc<Shared>,
    others: Arc<Others>,
}

/// Where a partition begins and ends, and who leads it, where that is another broker.
pub(super) type Served = (PartitionBounds, Option<SocketAddrV4>);

/// The brokers that one has named.
#[derive(Debug)]
struct Others {
    config: BrokerConfig,
    sockets: Arc<Descriptors>,
    /// `None`: the client was closed.
    known: Mutex<Option<HashMap<SocketAddrV4, Arc<Shared>>>>,
}

impl Broker {
    /// A client of the broker at `address`, which is `host:port`. Its tasks run on `runtime`.
    #[must_use]
    pub fn new(address: &str, config: BrokerConfig, runtime: Handle) -> Self {
        let sockets = Descriptors::new(SOCKETS);
        Self {
            shared: Shared::new(
                address,
                config.connect_timeout,
                TankPeer(config.client),
                Arc::clone(&sockets),
                runtime,
            ),
            others: Arc::new(Others {
                config,
                sockets,
                known: Mutex::new(Some(HashMap::new())),
            }),
        }
    }

    /// Where the broker is.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.name()
    }

    /// Whether there is a connection, now and from now on. There is none before the first call, and after the broker or this
    /// side has closed one that was idle; the next call makes one.
    #[must_use]
    pub fn watch_connected(&self) -> watch::Receiver<bool> {
        self.shared.watch_connected()
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.others.sockets.snapshot()
    }

    /// Connects, and waits until the broker has answered something.
    ///
    /// # Errors
    /// [`TankError`]: there is no broker.
    pub async fn connect(&self) -> Result<(), TankError> {
        match self.ask(Request::Status, true).await? {
            Answer::Status { .. } => Ok(()),
            other => Err(self.odd(&other)),
        }
    }

    /// Has the broker store a bundle, as [`sbp_tank::encode_bundle`] makes it. Where another broker leads the partition, that
    /// one is asked.
    ///
    /// # Errors
    /// [`TankError`]. Where it is not [certain](TankError::is_certain) that nothing was done, the messages may be stored.
    pub async fn produce(&self, topic: &str, partition: u16, bundle: Bytes) -> Result<(), TankError> {
        let mut broker = self.clone();
        let mut outcome = broker.produce_here(topic, partition, &bundle).await?;
        if let Produced::OtherLeader(leader) = outcome {
            broker = self.leader(leader)?;
            outcome = broker.produce_here(topic, partition, &bundle).await?;
        }
        let error = |kind| TankError::new(kind, outcome.to_string());
        let error = match outcome {
            Produced::Done => return Ok(()),
            Produced::UnknownTopic | Produced::UnknownPartition => error(TankErrorKind::UnknownName),
            // Some brokers may have it.
            Produced::Late | Produced::Replicas => error(TankErrorKind::Refused).perhaps_done(),
            Produced::Unavailable | Produced::NoLeader => error(TankErrorKind::Refused).for_now(),
            _ => error(TankErrorKind::Refused),
        };
        Err(error.about(topic, Some(partition)).at(broker.address()))
    }

    async fn produce_here(&self, topic: &str, partition: u16, bundle: &Bytes) -> Result<Produced, TankError> {
        let to = ProducedTo {
            partition,
            first: 0,
            bundle: bundle.clone(),
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
        let asked = self.ask(request, false).await;
        let outcome = match asked.map_err(|error| error.about(topic, Some(partition)))? {
            Answer::Produced(outcomes) => outcomes.into_iter().flatten().next(),
            other => return Err(self.odd(&other)),
        };
        let none = || {
            self.error(TankErrorKind::Peer, "the broker answers nothing")
                .perhaps_done()
        };
        outcome.ok_or_else(|| none().about(topic, Some(partition)))
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
        let asked = self.ask(request, false).await;
        let why = match asked.map_err(|error| error.about(topic, None))? {
            Answer::Created { code: 0, .. } => return Ok(()),
            Answer::Created { code: 1, .. } => String::from("the topic exists"),
            Answer::Created { code: 10, .. } => {
                String::from("the topic's name or number of partitions is none that the broker takes")
            }
            Answer::Created { code, .. } => format!("the broker did not make the topic: code {code}"),
            other => return Err(self.odd(&other)),
        };
        Err(self.error(TankErrorKind::Refused, why).about(topic, None))
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

    /// Where the partitions of a topic begin and end, from partition 0 on; `None` for one that nobody serves at the moment.
    /// Where another broker leads a partition, that one is asked.
    ///
    /// # Errors
    /// [`TankError`].
    pub async fn partitions(&self, topic: &str) -> Result<Vec<Option<PartitionBounds>>, TankError> {
        let served = self.served(topic).await?;
        Ok(served
            .into_iter()
            .map(|served| served.map(|(bounds, _)| bounds))
            .collect())
    }

    /// The same of several topics, in their order. Up to 64 questions are under way at once.
    pub async fn partitions_of(&self, topics: Vec<String>) -> Vec<Result<Vec<Option<PartitionBounds>>, TankError>> {
        let never = |topic: &String| {
            let error = self.error(TankErrorKind::Lost, "the runtime has ended").for_good();
            Err(error.about(topic, None))
        };
        let mut found: Vec<_> = topics.iter().map(never).collect();
        let mut left = topics.into_iter().enumerate();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < SIDE_BY_SIDE
                && let Some((place, topic)) = left.next()
            {
                let broker = self.clone();
                let asking = async move { (place, broker.partitions(&topic).await) };
                asked.spawn_on(asking, self.runtime());
            }
            match asked.join_next().await {
                None => return found,
                Some(Ok((place, told))) => {
                    if let Some(one) = found.get_mut(place) {
                        *one = told;
                    }
                }
                // Nobody aborts it: what was to be found stays an error.
                Some(Err(_)) => {}
            }
        }
    }

    /// The same, with the broker that leads the partition where it is another one.
    pub(super) async fn served(&self, topic: &str) -> Result<Vec<Option<Served>>, TankError> {
        let told = self.discover(topic).await?;
        let mut others: HashMap<SocketAddrV4, Vec<Discovered>> = HashMap::new();
        for one in &told {
            if let Discovered::OtherLeader(leader) = one
                && !others.contains_key(leader)
            {
                others.insert(*leader, self.leader(*leader)?.discover(topic).await?);
            }
        }
        let served = |(place, one): (usize, &Discovered)| match one {
            Discovered::Here(bounds) => Some((*bounds, None)),
            Discovered::OtherLeader(leader) => match others.get(leader).and_then(|told| told.get(place)) {
                Some(Discovered::Here(bounds)) => Some((*bounds, Some(*leader))),
                _ => None,
            },
            Discovered::Unavailable => None,
        };
        Ok(told.iter().enumerate().map(served).collect())
    }

    async fn discover(&self, topic: &str) -> Result<Vec<Discovered>, TankError> {
        let request = Request::DiscoverPartitions {
            topic: topic.to_owned(),
        };
        let asked = self.ask(request, true).await;
        let partitions = match asked.map_err(|error| error.about(topic, None))? {
            Answer::Partitions { partitions, .. } => partitions,
            other => return Err(self.odd(&other)),
        };
        if partitions.is_empty() {
            let error = self.error(TankErrorKind::UnknownName, "the broker has no such topic");
            return Err(error.about(topic, None));
        }
        Ok(partitions)
    }

    /// Ends the connections, and waits until they are over.
    pub async fn close(&self) {
        let others = self.others.known.lock().take();
        let all: Vec<_> = others.into_iter().flatten().map(|(_, shared)| shared).collect();
        for shared in all.iter().chain([&self.shared]) {
            shared.close();
        }
        for shared in all.iter().chain([&self.shared]) {
            shared.wait_closed().await;
        }
    }

    /// The broker there, which this one has named.
    ///
    /// # Errors
    /// This client was closed, or one broker names more of them than there can be.
    pub(super) fn leader(&self, address: SocketAddrV4) -> Result<Self, TankError> {
        let mut known = self.others.known.lock();
        let Some(known) = known.as_mut() else {
            return Err(self.closed());
        };
        if known.len() >= LEADERS && !known.contains_key(&address) {
            let what = format!("the broker names more than {LEADERS} other ones");
            return Err(self.error(TankErrorKind::Peer, what));
        }
        let config = &self.others.config;
        let shared = known.entry(address).or_insert_with(|| {
            Shared::new(
                &address.to_string(),
                config.connect_timeout,
                TankPeer(config.client),
                Arc::clone(&self.others.sockets),
                self.runtime().clone(),
            )
        });
        Ok(Self {
            shared: Arc::clone(shared),
            others: Arc::clone(&self.others),
        })
    }

    /// Where its tasks run.
    pub(super) fn runtime(&self) -> &Handle {
        self.shared.channel.runtime()
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
            _ => Err(self.error(TankErrorKind::Peer, "the broker answers something else")),
        }
    }

    async fn ask(&self, request: Request, is_repeatable: bool) -> Result<Answer, TankError> {
        match self.call(request, is_repeatable).await? {
            Ended::Answered(answer) => Ok(answer),
            _ => Err(self.error(TankErrorKind::Peer, "the broker answers something else")),
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
            let doubtful = |error: TankError, bytes_sent| match bytes_sent && !is_repeatable {
                true => error.perhaps_done(),
                false => error,
            };
            let (why, bytes_sent) = match ended.await {
                Ok(Ended::Lost { why, bytes_sent }) => (why, bytes_sent),
                Ok(Ended::Broken { kind, why }) => return Err(doubtful(self.error(kind, why), true)),
                Ok(Ended::Unfit(why)) => return Err(self.error(TankErrorKind::Limit, why)),
                Ok(Ended::Closed) => return Err(self.closed()),
                Ok(ended) => return Ok(ended),
                // The runtime has ended, and with it the connection.
                Err(_) => return Err(doubtful(self.closed(), true)),
            };
            // Only a connection that was lost is worth another one at once: one that was not made is not made now either.
            let again = bytes_sent && is_repeatable;
            if again && attempts < ATTEMPTS {
                continue;
            }
            return Err(doubtful(self.error(TankErrorKind::Lost, why), bytes_sent));
        }
    }

    pub(super) fn closed(&self) -> TankError {
        self.error(TankErrorKind::Lost, "the client was closed").for_good()
    }

    fn odd(&self, answer: &Answer) -> TankError {
        self.error(
            TankErrorKind::Peer,
            format!("the broker answers something else: {answer:?}"),
        )
    }

    /// An error of a call to this broker.
    fn error(&self, kind: TankErrorKind, what: impl Into<String>) -> TankError {
        TankError::new(kind, what).at(self.address())
    }
}
