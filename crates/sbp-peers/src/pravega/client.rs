//! A client of Pravega: streams and their segments, over a controller or directly on one segment store.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_pravega::{ClientConfig, Reply, Request, Segment, SegmentId, SegmentInfo};
use sbp_transport::{Descriptors, LinkSettings};
use tokio::runtime::Handle;

use super::controller::Controller;
use super::error::{PravegaError, PravegaErrorKind};
use super::layout::{Follower, Owned, StreamName};
use super::store::{Store, closed};

/// Sockets that are remembered: the ones in use, and those that end.
const SOCKETS: usize = 256;
/// Segment stores that a controller may name.
const STORES: usize = 1_024;
/// Segments that are looked for in a stream without a controller.
const SEGMENTS: i32 = 10_000;

/// How servers are talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PravegaConfig {
    /// How long dialling may take.
    pub connect_timeout: Duration,
    /// How long a call to a controller may take.
    pub controller_timeout: Duration,
    /// How long segment stores may take.
    pub client: ClientConfig,
    /// How long a writer tries to get an event stored before it gives up.
    pub write_patience: Duration,
    /// A delegation token, for servers that ask for one.
    pub token: String,
}

impl Default for PravegaConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            controller_timeout: Duration::from_secs(30),
            client: ClientConfig::default(),
            write_patience: Duration::from_secs(120),
            token: String::new(),
        }
    }
}

/// A client; clones share its connections.
///
/// With a controller it finds the server of each segment. Without one all segments are on one segment store, and a stream is made
/// of those with the numbers from 0 on in epoch 0, as many as there are, with equal shares of the keys.
#[derive(Debug, Clone)]
pub struct Pravega(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: PravegaConfig,
    runtime: Handle,
    sockets: Arc<Descriptors>,
    place: Place,
    /// `None`: the client was closed.
    stores: Mutex<Option<HashMap<String, Store>>>,
}

#[derive(Debug)]
enum Place {
    Controller(Box<Controller>),
    /// The address of a segment store.
    Store(String),
}

impl Pravega {
    /// A client of the cluster whose controller is at `address`, which is `host:port`. Its tasks run on `runtime`.
    ///
    /// # Errors
    /// The address cannot be one.
    pub fn new(address: &str, config: PravegaConfig, runtime: Handle) -> Result<Self, PravegaError> {
        let sockets = Descriptors::new(SOCKETS);
        let settings = LinkSettings {
            timeout: config.connect_timeout,
            tls: None,
            sockets: Arc::clone(&sockets),
        };
        let controller = Controller::new(address, settings, config.controller_timeout).ok_or_else(|| {
            let what = format!("{address:?} is no address, which is written host:port");
            PravegaError::new(PravegaErrorKind::Lost, what).for_good()
        })?;
        Ok(Self::at(
            Place::Controller(Box::new(controller)),
            config,
            sockets,
            runtime,
        ))
    }

    /// A client of the segment store at `address`, without a controller.
    #[must_use]
    pub fn direct(address: &str, config: PravegaConfig, runtime: Handle) -> Self {
        let place = Place::Store(address.to_owned());
        Self::at(place, config, Descriptors::new(SOCKETS), runtime)
    }

    fn at(place: Place, config: PravegaConfig, sockets: Arc<Descriptors>, runtime: Handle) -> Self {
        Self(Arc::new(Inner {
            config,
            runtime,
            sockets,
            place,
            stores: Mutex::new(Some(HashMap::new())),
        }))
    }

    /// Where the controller is, or the segment store.
    #[must_use]
    pub fn address(&self) -> &str {
        match &self.0.place {
            Place::Controller(controller) => controller.address(),
            Place::Store(address) => address,
        }
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.0.sockets.snapshot()
    }

    /// Where its tasks run.
    pub(super) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    pub(super) fn config(&self) -> &PravegaConfig {
        &self.0.config
    }

    /// Connects, and waits until the server has answered something.
    ///
    /// # Errors
    /// [`PravegaError`]: there is no server.
    pub async fn connect(&self) -> Result<(), PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => controller.scopes().await.map(|_| ()),
            Place::Store(address) => {
                let store = self.store(address)?;
                // What a server says of a segment that there is not does not matter.
                self.info_at(&store, "_sbp/connected/0.#epoch.0").await.map(|_| ())
            }
        }
    }

    /// Makes a scope. Without a controller there are none, and nothing is done.
    ///
    /// # Errors
    /// [`PravegaError`]; there is such a scope.
    pub async fn create_scope(&self, scope: &str) -> Result<(), PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => {
                let made = controller.create_scope(scope).await;
                made.map_err(|error| error.about(scope))
            }
            Place::Store(_) => Ok(()),
        }
    }

    /// Makes a stream of so many segments.
    ///
    /// # Errors
    /// [`PravegaError`]; there is such a stream, or no such scope.
    pub async fn create_stream(&self, stream: &StreamName, segments: i32) -> Result<(), PravegaError> {
        let made = match &self.0.place {
            Place::Controller(controller) => controller.create_stream(stream, segments).await,
            Place::Store(address) => {
                let store = self.store(address)?;
                self.create_segments(&store, stream, segments).await
            }
        };
        made.map_err(|error| error.about(stream))
    }

    async fn create_segments(&self, store: &Store, stream: &StreamName, segments: i32) -> Result<(), PravegaError> {
        for number in 0..segments {
            let segment = stream.segment(SegmentId::new(0, number));
            let request = Request::Create {
                segment: segment.to_string(),
                rate: 0,
                scale: 0,
                token: self.token(),
                rollover: Some(0),
            };
            match store.change(request, None).await? {
                Reply::Created(_) => {}
                other => return Err(PravegaError::of_reply(&other).about(&segment).at(&store.address())),
            }
        }
        Ok(())
    }

    /// Seals a stream: nothing more is appended to it.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub async fn seal_stream(&self, stream: &StreamName) -> Result<(), PravegaError> {
        let sealed = match &self.0.place {
            Place::Controller(controller) => controller.seal_stream(stream).await,
            Place::Store(_) => {
                self.change_each(stream, |segment, token| Request::Seal { segment, token })
                    .await
            }
        };
        sealed.map_err(|error| error.about(stream))
    }

    /// Removes a stream that is sealed.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub async fn delete_stream(&self, stream: &StreamName) -> Result<(), PravegaError> {
        let deleted = match &self.0.place {
            Place::Controller(controller) => controller.delete_stream(stream).await,
            Place::Store(_) => {
                self.change_each(stream, |segment, token| Request::Delete { segment, token })
                    .await
            }
        };
        deleted.map_err(|error| error.about(stream))
    }

    async fn change_each(
        &self,
        stream: &StreamName,
        request: impl Fn(String, String) -> Request,
    ) -> Result<(), PravegaError> {
        for owned in self.current_segments(stream).await? {
            let store = self.store_of(&owned.segment).await?;
            match store
                .change(request(owned.segment.to_string(), self.token()), None)
                .await?
            {
                Reply::Sealed(_) | Reply::Deleted(_) => {}
                other => {
                    return Err(PravegaError::of_reply(&other)
                        .about(&owned.segment)
                        .at(&store.address()));
                }
            }
        }
        Ok(())
    }

    /// Removes the bytes of a segment that are before `offset`.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub async fn truncate_segment(&self, segment: &Segment, offset: i64) -> Result<(), PravegaError> {
        let store = self.store_of(segment).await?;
        let request = Request::Truncate {
            segment: segment.to_string(),
            offset,
            token: self.token(),
        };
        match store
            .change(request, None)
            .await
            .map_err(|error| error.about(segment))?
        {
            Reply::Truncated(_) => Ok(()),
            other => Err(PravegaError::of_reply(&other).about(segment).at(&store.address())),
        }
    }

    /// The scopes.
    ///
    /// # Errors
    /// [`PravegaError`]; there is no controller.
    pub async fn scopes(&self) -> Result<Vec<String>, PravegaError> {
        self.controller()?.scopes().await
    }

    /// The streams of a scope.
    ///
    /// # Errors
    /// [`PravegaError`]; there is no controller, or no such scope.
    pub async fn streams(&self, scope: &str) -> Result<Vec<StreamName>, PravegaError> {
        let streams = self.controller()?.streams(scope).await;
        streams.map_err(|error| error.about(scope))
    }

    fn controller(&self) -> Result<&Controller, PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => Ok(controller.as_ref()),
            Place::Store(address) => {
                let what = "a segment store knows no scopes and lists no streams: that takes a controller";
                Err(PravegaError::new(PravegaErrorKind::Refused, what).at(address))
            }
        }
    }

    /// The segments of a stream that are open, and which keys belong to them.
    ///
    /// # Errors
    /// [`PravegaError`]; there is no such stream.
    pub async fn current_segments(&self, stream: &StreamName) -> Result<Vec<Owned>, PravegaError> {
        let found = match &self.0.place {
            Place::Controller(controller) => controller.current_segments(stream).await,
            Place::Store(address) => self.segments_at(address, stream).await,
        };
        found.map_err(|error| error.about(stream))
    }

    /// The segments that there are on a segment store, from number 0 on.
    async fn segments_at(&self, address: &str, stream: &StreamName) -> Result<Vec<Owned>, PravegaError> {
        let store = self.store(address)?;
        let mut segments = Vec::new();
        for number in 0..SEGMENTS {
            let segment = stream.segment(SegmentId::new(0, number));
            match self.info_at(&store, &segment.to_string()).await? {
                Some(_) => segments.push(segment),
                None => break,
            }
        }
        if segments.is_empty() {
            let what = "the server has no segment 0.#epoch.0 of the stream";
            return Err(PravegaError::new(PravegaErrorKind::UnknownName, what).at(address));
        }
        let share = 1.0 / f64::from(u32::try_from(segments.len()).unwrap_or(u32::MAX));
        let owned = (0_u32..).zip(segments).map(|(number, segment)| Owned {
            segment,
            low: f64::from(number) * share,
            high: f64::from(number + 1) * share,
        });
        Ok(owned.collect())
    }

    /// The segments with which a stream begins, and where they begin.
    pub(super) async fn first_segments(&self, stream: &StreamName) -> Result<Vec<(Segment, i64)>, PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => {
                let first = controller.first_segments(stream).await;
                first.map_err(|error| error.about(stream))
            }
            Place::Store(_) => {
                let owned = self.current_segments(stream).await?;
                Ok(owned.into_iter().map(|owned| (owned.segment, 0)).collect())
            }
        }
    }

    /// The segments that follow one that is sealed; none: the stream ends with it.
    pub(super) async fn followers(&self, segment: &Segment) -> Result<Vec<Follower>, PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => {
                let followers = controller.followers(segment).await;
                followers.map_err(|error| error.about(segment))
            }
            Place::Store(_) => Ok(Vec::new()),
        }
    }

    /// What a segment is.
    ///
    /// # Errors
    /// [`PravegaError`]; there is no such segment.
    pub async fn segment_info(&self, segment: &Segment) -> Result<SegmentInfo, PravegaError> {
        let store = self.store_of(segment).await?;
        let info = self.info_at(&store, &segment.to_string()).await;
        info.map_err(|error| error.about(segment))?.ok_or_else(|| {
            let what = "the server has no such segment";
            let error = PravegaError::new(PravegaErrorKind::UnknownName, what);
            error.about(segment).at(&store.address())
        })
    }

    async fn info_at(&self, store: &Store, segment: &str) -> Result<Option<SegmentInfo>, PravegaError> {
        let request = Request::Info {
            segment: segment.to_owned(),
            token: self.token(),
        };
        match store.ask(request).await? {
            Reply::Info(info) if info.exists && !info.is_deleted => Ok(Some(info)),
            Reply::Info(_) | Reply::NoSuchSegment { .. } => Ok(None),
            other => Err(PravegaError::of_reply(&other).at(&store.address())),
        }
    }

    pub(super) fn token(&self) -> String {
        self.0.config.token.clone()
    }

    /// The server that has a segment.
    pub(super) async fn store_of(&self, segment: &Segment) -> Result<Store, PravegaError> {
        match &self.0.place {
            Place::Controller(controller) => {
                let address = controller.server_of(segment).await;
                self.store(&address.map_err(|error| error.about(segment))?)
            }
            Place::Store(address) => self.store(address),
        }
    }

    fn store(&self, address: &str) -> Result<Store, PravegaError> {
        let mut stores = self.0.stores.lock();
        let Some(stores) = stores.as_mut() else {
            return Err(closed());
        };
        if let Some(store) = stores.get(address) {
            return Ok(store.clone());
        }
        if stores.len() >= STORES {
            let what = format!("the controller names more than {STORES} servers");
            return Err(PravegaError::new(PravegaErrorKind::Peer, what).at(self.address()));
        }
        let config = &self.0.config;
        let sockets = Arc::clone(&self.0.sockets);
        let store = Store::new(
            address,
            config.connect_timeout,
            config.client,
            sockets,
            self.0.runtime.clone(),
        );
        stores.insert(address.to_owned(), store.clone());
        Ok(store)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.stores.lock().is_none()
    }

    /// Ends the connections, and waits until they are over.
    pub async fn close(&self) {
        let stores = self.0.stores.lock().take();
        let stores: Vec<_> = stores.into_iter().flatten().map(|(_, store)| store).collect();
        stores.iter().for_each(Store::close);
        for store in &stores {
            store.wait_closed().await;
        }
        if let Place::Controller(controller) = &self.0.place {
            controller.disconnect().await;
        }
    }
}
