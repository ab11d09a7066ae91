//! Reader groups: a stream with the group's state, which the readers write themselves, and what the group was made with.

use bytes::Bytes;
use sbp_grpc::Status;
use sbp_pravega::controller::{GroupConfig, GroupInfo, GroupMade, Status as Outcome, StreamConfig, StreamInfo};

use super::{Controller, Found, Store, read, unavailable, written};
use crate::pravega::names::is_stream;

/// The property of the stream with a group's state: what the group was made with, in hexadecimal digits.
const GROUP: &str = "pravega.group";

/// Why a group is not made.
const NO_SCOPE: i32 = 2;
const INVALID: i32 = 3;
/// There is no such group.
const NO_GROUP: i32 = 2;

impl<S: Store> Controller<S> {
    /// Answers a call about a reader group; `None`: it is another call.
    pub(super) async fn group(&self, method: &str, request: Bytes) -> Result<Option<Bytes>, Status> {
        Ok(match method {
            "createReaderGroup" => Some(written(&self.make_group(request).await?)),
            "getReaderGroupConfig" => Some(written(&self.group_config(read(request)?).await?)),
            "deleteReaderGroup" => Some(written(&self.delete_group(read(request)?).await?)),
            _ => None,
        })
    }

    /// A group that there is stays as it is: whoever asks is told what it was made with.
    async fn make_group(&self, request: Bytes) -> Result<GroupMade, Status> {
        let info: GroupInfo = read(request.clone())?;
        let refused = |status| GroupMade {
            status,
            config: Bytes::new(),
        };
        let stream = state_of(&info);
        if info.group.is_empty() || !is_stream(&stream.scope, &stream.stream) {
            return Ok(refused(INVALID));
        }
        let scopes = self.catalog.scopes_with_scope(&info.scope).await.map_err(unavailable)?;
        if !scopes.0.contains_key(&info.scope) {
            return Ok(refused(NO_SCOPE));
        }
        if self.find(&stream).await?.is_none() {
            self.make_own(&stream).await?;
        }
        let made = |config| GroupMade { status: 0, config };
        let _changing = self.changing.lock().await;
        if let Some(config) = said(&self.stream(&stream).await?) {
            return Ok(made(config));
        }
        let first = first_of(&stream);
        let set = self.catalog.set_property(&first, GROUP, hex::encode(&request));
        match set.await.map_err(unavailable)? {
            true => Ok(made(request)),
            false => Err(super::missing(&stream)),
        }
    }

    async fn group_config(&self, info: GroupInfo) -> Result<GroupConfig, Status> {
        let found = self.find(&state_of(&info)).await?;
        Ok(match found.as_ref().and_then(said) {
            Some(config) => GroupConfig { config, status: 0 },
            None => GroupConfig {
                config: Bytes::new(),
                status: NO_GROUP,
            },
        })
    }

    async fn delete_group(&self, info: GroupInfo) -> Result<Outcome, Status> {
        let Some(found) = self.find(&state_of(&info)).await? else {
            return Ok(Outcome { status: NO_GROUP });
        };
        let _changing = self.changing.lock().await;
        self.remove(&found).await?;
        Ok(Outcome { status: 0 })
    }

    /// Makes a stream that clients have for themselves, if there is its scope.
    pub(super) async fn make_own(&self, stream: &StreamInfo) -> Result<(), Status> {
        let config = StreamConfig {
            stream: Some(stream.clone()),
            ..StreamConfig::default()
        };
        // Who is asked for it at the same time makes it as well.
        self.create_stream(&config).await.map(drop)
    }
}

/// What a group was made with. A stream with a group's state can be made without.
fn said(found: &Found) -> Option<Bytes> {
    let digits = found.segments().get(&0)?.property(GROUP)?;
    Some(hex::decode(digits).ok()?.into())
}

fn state_of(info: &GroupInfo) -> StreamInfo {
    StreamInfo {
        scope: info.scope.clone(),
        stream: format!("_RG{}", info.group),
    }
}

/// The name of a stream's first segment.
pub(super) fn first_of(stream: &StreamInfo) -> String {
    format!("{}/{}/0.#epoch.0", stream.scope, stream.stream)
}
