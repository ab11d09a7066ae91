//! Continuations: where the next page begins.
//!
//! A token names the last thing shown, so it stays valid over a restart and over changes between two pages.

use sbp_types::{RangeIndex, RangeKey, StreamId};

/// The bytes are no token of this kind of listing. The request is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the continuation is not one that this server gave for such a request")]
pub(crate) struct TokenError;

/// First byte of a token of DESCRIBE_STREAMS: kind and version in one.
const STREAMS: u8 = 0x51;
/// First byte of a token of LIST_RANGES.
const RANGES: u8 = 0x61;

/// After which stream the next page of DESCRIBE_STREAMS goes on.
pub(crate) fn write_stream_token(last: StreamId) -> Vec<u8> {
    let mut token = vec![STREAMS];
    token.extend_from_slice(&last.0.to_be_bytes());
    token
}

/// Reads what [`write_stream_token`] wrote; no bytes are the beginning.
pub(crate) fn read_stream_token(token: &[u8]) -> Result<StreamId, TokenError> {
    match token.split_first() {
        None => Ok(StreamId(0)),
        Some((&STREAMS, id)) => {
            let id = i64::from_be_bytes(id.try_into().map_err(|_| TokenError)?);
            if id < 1 { Err(TokenError) } else { Ok(StreamId(id)) }
        }
        Some(_) => Err(TokenError),
    }
}

/// Where a page of LIST_RANGES begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangePlace {
    /// Which criterion of the request.
    pub(crate) criterion: u32,
    /// Behind which range of it; `None`: at its first.
    pub(crate) after: Option<RangeKey>,
}

/// Writes where the next page of LIST_RANGES goes on.
pub(crate) fn write_range_token(place: RangePlace) -> Vec<u8> {
    let mut token = vec![RANGES];
    token.extend_from_slice(&place.criterion.to_be_bytes());
    if let Some(key) = place.after {
        token.extend_from_slice(&key.stream.0.to_be_bytes());
        token.extend_from_slice(&key.range.0.to_be_bytes());
    }
    token
}

/// Reads what [`write_range_token`] wrote for a request of `criteria` criteria; no bytes are the beginning.
pub(crate) fn read_range_token(token: &[u8], criteria: usize) -> Result<RangePlace, TokenError> {
    let place = match token.split_first() {
        None => return Ok(RangePlace::default()),
        Some((&RANGES, rest)) => parse_place(rest).ok_or(TokenError)?,
        Some(_) => return Err(TokenError),
    };
    let known = usize::try_from(place.criterion).is_ok_and(|index| index < criteria);
    if known { Ok(place) } else { Err(TokenError) }
}

fn parse_place(bytes: &[u8]) -> Option<RangePlace> {
    let (criterion, rest) = bytes.split_first_chunk::<4>()?;
    let criterion = u32::from_be_bytes(*criterion);
    if rest.is_empty() {
        return Some(RangePlace { criterion, after: None });
    }
    let (stream, range) = rest.split_first_chunk::<8>()?;
    let stream = StreamId(i64::from_be_bytes(*stream));
    let range = RangeIndex(i32::from_be_bytes(range.try_into().ok()?));
    Some(RangePlace {
        criterion,
        after: Some(RangeKey { stream, range }),
    })
}
