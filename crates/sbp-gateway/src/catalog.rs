//! What the service's streams stand for in another protocol, at most a second old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::{Client, ClientError};
use sbp_locks::Mutex;
use sbp_messages::Stream;

/// How old what is known may be.
const OLDEST: Duration = Duration::from_secs(1);

/// What streams stand for.
pub(crate) trait Meaning: Send + Sync + 'static {
    /// That of all streams of the service.
    fn of(streams: &[Arc<Stream>]) -> Self;
}

/// What is known of the service's streams.
#[derive(Debug)]
pub(crate) struct Catalog<M> {
    client: Client,
    known: Mutex<Known<M>>,
    /// Held by whoever asks.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known<M> {
    /// When it was asked for, and what was told.
    told: Option<(Instant, Arc<M>)>,
    /// What was asked for before this is not looked at: something has been changed since.
    not_before: Option<Instant>,
}

impl<M> Known<M> {
    /// What was asked for at this time or later.
    fn since(&self, since: Instant) -> Option<Arc<M>> {
        let (asked, meaning) = self.told.as_ref()?;
        let is_current = *asked >= since && self.not_before.is_none_or(|not_before| *asked >= not_before);
        is_current.then(|| Arc::clone(meaning))
    }
}

impl<M: Meaning> Catalog<M> {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::new(Known {
                told: None,
                not_before: None,
            }),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    /// What all streams stand for.
    pub(crate) async fn all(&self) -> Result<Arc<M>, ClientError> {
        let now = Instant::now();
        self.asked_since(now.checked_sub(OLDEST).unwrap_or(now)).await
    }

    /// The same. Where what is looked for is not known, it is asked for again: if it is not there then, there is none now.
    pub(crate) async fn all_with(&self, is_known: impl Fn(&M) -> bool) -> Result<Arc<M>, ClientError> {
        let now = Instant::now();
        let all = self.all().await?;
        match is_known(&all) {
            true => Ok(all),
            false => self.asked_since(now).await,
        }
    }

    /// What was asked for at this time or later.
    async fn asked_since(&self, since: Instant) -> Result<Arc<M>, ClientError> {
        if let Some(known) = self.known.lock().since(since) {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        // Somebody else may have asked meanwhile.
        if let Some(known) = self.known.lock().since(since) {
            return Ok(known);
        }
        let asked = Instant::now();
        let streams = self.client.list_streams(None).await?;
        let meaning = Arc::new(M::of(&streams));
        self.known.lock().told = Some((asked, Arc::clone(&meaning)));
        Ok(meaning)
    }

    /// Something was changed: what was asked for before is not looked at any more, not even where the answer is still to come.
    pub(crate) fn forget(&self) {
        self.known.lock().not_before = Some(Instant::now());
    }
}
