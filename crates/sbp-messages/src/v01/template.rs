//! Headers of the hot road, written without a builder.

use bytes::BytesMut;

use super::encode;
use crate::{AppendRequest, AppendResponse, Encoder, FetchRequest};

/// APPEND request.
pub(super) fn encode_append_request(message: &AppendRequest, encoder: &mut Encoder, out: &mut BytesMut) {
    encode(message, encoder, out);
}

/// APPEND response.
pub(super) fn encode_append_response(message: &AppendResponse, encoder: &mut Encoder, out: &mut BytesMut) {
    encode(message, encoder, out);
}

/// FETCH request.
pub(super) fn encode_fetch_request(message: &FetchRequest, encoder: &mut Encoder, out: &mut BytesMut) {
    encode(message, encoder, out);
}
