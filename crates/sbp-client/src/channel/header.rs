//! Headers of requests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_messages::{Encoder, Message};

/// The time that is left, as requests carry it.
pub(crate) fn millis(left: Duration) -> i32 {
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(crate) fn encoded<M: Message>(message: &M) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    out.freeze()
}
