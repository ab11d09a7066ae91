//! What is said of a stream when it is made.

use prost::Message;
use sbp_grpc::Status;
use sbp_pravega::controller::{ScalingPolicy, StreamConfig, StreamInfo};

use super::{Controller, Found, Store};

/// The property of a stream's first segment with what was said: the message, in hexadecimal digits.
pub(super) const SETTINGS: &str = "pravega.settings";

impl<S: Store> Controller<S> {
    pub(super) async fn configuration(&self, stream: StreamInfo) -> Result<StreamConfig, Status> {
        let found = self.stream(&stream).await?;
        Ok(StreamConfig {
            stream: Some(stream),
            ..of(&found)
        })
    }
}

/// What was said of a stream. Of one that was made segment by segment nothing was.
fn of(found: &Found) -> StreamConfig {
    let said = found.spokesman().and_then(|(_, held)| held.property(SETTINGS));
    let said = said.and_then(|digits| hex::decode(digits).ok());
    let said = said.and_then(|bytes| StreamConfig::decode(bytes.as_slice()).ok());
    let mut config = said.unwrap_or_default();
    // A stream keeps the segments that it has.
    let scaling = config.scaling.get_or_insert_with(ScalingPolicy::default);
    scaling.segments = i32::try_from(found.width()).unwrap_or(i32::MAX);
    config
}

/// The property's value, which does not name the stream.
pub(super) fn value_of(config: &StreamConfig) -> String {
    let nameless = StreamConfig {
        stream: None,
        ..config.clone()
    };
    hex::encode(nameless.encode_to_vec())
}
