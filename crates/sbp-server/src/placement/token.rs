//! Continuation tokens: where the next page of a listing begins.
//!
//! A token names the last item shown, so it stays valid over a restart and over changes between two pages.

use sbp_types::{RangeIndex, RangeKey, StreamId};

use crate::refusal::Refusal;

/// The bytes are not a token of this kind of listing. The whole request is refused.
fn foreign() -> Refusal {
    Refusal::invalid("the continuation is not one that this server gave for such a request")
}

/// First byte of a DESCRIBE_STREAMS token: its kind and version.
const STREAMS: u8 = 0x51;
/// First byte of a LIST_RANGES token.
const RANGES: u8 = 0x61;

/// The token for the page of DESCRIBE_STREAMS that begins after stream `last`.
pub(crate) fn write_stream_token(last: StreamId) -> Vec<u8> {
    let mut token = vec![STREAMS];
    token.extend_from_slice(&last.0.to_be_bytes());
    token
}

/// Reads what [`write_stream_token`] wrote. An empty token is the first page.
pub(crate) fn read_stream_token(token: &[u8]) -> Result<StreamId, Refusal> {
    match token.split_first() {
        None => Ok(StreamId(0)),
        Some((&STREAMS, id)) => {
            let id = i64::from_be_bytes(id.try_into().map_err(|_| foreign())?);
            if id < 1 { Err(foreign()) } else { Ok(StreamId(id)) }
        }
        Some(_) => Err(foreign()),
    }
}

/// The place where a page of LIST_RANGES begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangePlace {
    /// The index of the criterion in the request.
    pub(crate) criterion: u32,
    /// The last range shown of that criterion; `None`: none was shown yet.
    pub(crate) after: Option<RangeKey>,
}

/// The token for the page of LIST_RANGES that begins at `place`.
pub(crate) fn write_range_token(place: RangePlace) -> Vec<u8> {
    let mut token = vec![RANGES];
    token.extend_from_slice(&place.criterion.to_be_bytes());
    if let Some(key) = place.after {
        token.extend_from_slice(&key.stream.0.to_be_bytes());
        token.extend_from_slice(&key.range.0.to_be_bytes());
    }
    token
}

/// Reads what [`write_range_token`] wrote, for a request with `criteria` criteria. An empty token is the first page.
pub(crate) fn read_range_token(token: &[u8], criteria: usize) -> Result<RangePlace, Refusal> {
    let place = match token.split_first() {
        None => return Ok(RangePlace::default()),
        Some((&RANGES, rest)) => parse_place(rest).ok_or_else(foreign)?,
        Some(_) => return Err(foreign()),
    };
    let known = usize::try_from(place.criterion).is_ok_and(|index| index < criteria);
    if known { Ok(place) } else { Err(foreign()) }
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
