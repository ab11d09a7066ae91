//! Whether streams that were described are still what they were.

use std::sync::Arc;
use std::time::Duration;

use sbp_messages::{ErrorCode, Stream};
use sbp_types::StreamId;

use crate::client::Client;
use crate::error::ClientError;

/// How long a placement driver is waited for, where others serve the stream.
const ELSEWHERE: Duration = Duration::from_millis(500);

impl Client {
    fn era(&self) -> Option<u64> {
        self.channel().counters.era()
    }

    /// The stream of that name, if it was described before, without asking the server.
    #[must_use]
    pub fn known_stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.core().known.lock().by_name.get(name).cloned()
    }

    /// The stream of that number, if it was described before, without asking the server.
    #[must_use]
    pub fn known_stream_id(&self, stream: StreamId) -> Option<Arc<Stream>> {
        let known = self.core().known.lock();
        known.by_id.get(&stream).map(|seen| Arc::clone(&seen.stream))
    }

    /// Whether nothing has happened since the stream was described that could have made it another one.
    #[must_use]
    pub fn is_current(&self, stream: StreamId) -> bool {
        self.core().known.lock().is_current(stream, self.era())
    }

    /// Whether `stream` is the one of its number, as far as is known without asking the server.
    ///
    /// # Errors
    ///
    /// [`codes::STREAM_REPLACED`](crate::codes::STREAM_REPLACED): it is not.
    pub fn check_same(&self, stream: &Stream) -> Result<(), ClientError> {
        let Some(meant) = stream.identity else {
            return Ok(());
        };
        match self.known_stream_id(stream.stream_id) {
            Some(found) if found.identity.is_some_and(|identity| identity != meant) => Err(ClientError::replaced(
                &found,
                meant,
                &format!("the stream {:?}", stream.name),
            )),
            _ => Ok(()),
        }
    }

    /// Whether `stream` is still the one of its number: asks the server where a connection was lost or made since that
    /// was last known. What the server cannot be asked for the moment is left to the call itself.
    ///
    /// # Errors
    ///
    /// [`codes::STREAM_REPLACED`](crate::codes::STREAM_REPLACED): it is not. The server lost its data, or was set up
    /// anew.
    pub async fn confirm(&self, stream: &Stream, timeout: Option<Duration>) -> Result<(), ClientError> {
        let id = stream.stream_id;
        if stream.identity.is_none() {
            return Ok(());
        }
        if !self.is_current(id) {
            let elsewhere = !Arc::ptr_eq(&self.pool().for_append(id), self.channel());
            let patience = timeout.unwrap_or(self.config().timeout);
            let patience = if elsewhere { patience.min(ELSEWHERE) } else { patience };
            if let Err(error) = self.describe_streams(&[id], &[], Some(patience)).await {
                tracing::debug!(%error, stream = id.0, "whether a stream is the same could not be asked");
            }
        }
        self.check_same(stream)
    }

    /// [Confirms](Self::confirm) a stream beside the calls that use it, where that is due: the next ones know.
    pub fn confirm_beside(&self, stream: &Arc<Stream>) {
        let id = stream.stream_id;
        {
            let mut known = self.core().known.lock();
            if stream.identity.is_none() || known.is_current(id, self.era()) || !known.asking.insert(id) {
                return;
            }
        }
        let (client, stream) = (self.clone(), Arc::clone(stream));
        self.runtime().spawn(async move {
            if let Err(error) = client.confirm(&stream, None).await {
                tracing::warn!(%error, stream = id.0, "a stream is not the one that it was");
            }
            client.core().known.lock().asking.remove(&id);
        });
    }

    /// Remembers a stream.
    pub(crate) fn remember(&self, stream: &Arc<Stream>) {
        let era = self.era();
        self.core().known.lock().remember(stream, era);
    }

    /// Forgets a stream that the server does not know any more.
    pub(crate) fn forget(&self, error: &ClientError, stream: StreamId) {
        if error.code() == ErrorCode::NOT_FOUND {
            self.forget_stream(stream);
        }
        // A server that stays silent may not have the stream any more.
        if error.is_timeout() && self.pool().is_routed() {
            self.pool().routes.lock().forget(stream);
        }
    }

    /// Forgets what stream had a name that none has now.
    pub(crate) fn forget_name(&self, name: &str) {
        self.core().known.lock().by_name.remove(name);
    }

    /// Forgets a stream and its names, so that it is looked up anew.
    pub fn forget_stream(&self, stream: StreamId) {
        let mut known = self.core().known.lock();
        known.by_id.remove(&stream);
        known.by_name.retain(|_, known| known.stream_id != stream);
    }
}
