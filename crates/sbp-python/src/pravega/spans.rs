//! Spans of segments as one Arrow stream, which segments a stream has, and where they begin and end: for Spark.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyo3::prelude::*;
use sbp_peers::pravega::{
    End, Pravega as PeerClient, PravegaError, PravegaErrorKind, ReadPart, Reader, Segment, SegmentInfo, Start,
    StreamName,
};
use sbp_record::Source;
use sbp_types::StreamId;

use super::arguments;
use super::client::Pravega;
use super::core::PravegaCore;
use crate::errors;
use crate::owner::{Owner, block};
use crate::read::pravega::PravegaClient;
use crate::requests::{Effect, Failure, late};
use crate::spark::peer_spans::{PeerSpanReader, Piece, Spans};

/// Bytes that are looked at, at least, for the end of an event that is longer than what was asked for.
const LOOKED_AT: i64 = 64 << 10;

/// A segment's name, and the names of those that it follows.
type Named = (String, Vec<String>);

/// The segments of a stream, each behind those that it follows; `None`: there is no such stream.
#[pyfunction]
#[pyo3(signature = (client, stream, timeout = None))]
pub(crate) fn pravega_segments(
    py: Python<'_>,
    client: &Pravega,
    stream: &str,
    timeout: Option<f64>,
) -> PyResult<Option<Vec<Named>>> {
    let stream = arguments::stream(py, stream)?;
    block(py, client.core(), timeout, |client, timeout| async move {
        let asking = segments_of(&client.pravega, &stream);
        client.within(timeout, Effect::None, asking).await
    })
}

async fn segments_of(pravega: &PeerClient, stream: &StreamName) -> Result<Option<Vec<Named>>, PravegaError> {
    let found = match pravega.segments(stream).await {
        Err(error) if error.kind() == PravegaErrorKind::UnknownName => return Ok(None),
        found => found?,
    };
    let named = found.into_iter().map(|found| {
        let follows = found.follows.into_iter().map(|id| Segment {
            id,
            ..found.segment.clone()
        });
        (
            found.segment.to_string(),
            follows.map(|segment| segment.to_string()).collect(),
        )
    });
    Ok(Some(named.collect()))
}

/// Where segments begin and end, and whether they are sealed; `None` in place of one that there is not.
#[pyfunction]
#[pyo3(signature = (client, segments, timeout = None))]
pub(crate) fn pravega_bounds(
    py: Python<'_>,
    client: &Pravega,
    segments: Vec<String>,
    timeout: Option<f64>,
) -> PyResult<Vec<Option<(i64, i64, bool)>>> {
    let segments = segments.iter().map(|name| segment(py, name));
    let segments = segments.collect::<PyResult<Vec<_>>>()?;
    let found = block(py, client.core(), timeout, |client, timeout| async move {
        let asking = client.pravega.segment_infos(segments);
        client.within(timeout, Effect::None, asking).await
    })?;
    let bounds = |info: SegmentInfo| (info.start.unwrap_or(0), info.length, info.is_sealed);
    Ok(found.into_iter().map(|info| info.map(bounds)).collect())
}

/// Where the last event ends that ends at a byte or in front of it, of those that are read from `start` on; where the first one
/// ends, if it ends behind that byte.
#[pyfunction]
#[pyo3(signature = (client, name, start, limit, timeout = None))]
pub(crate) fn pravega_event_end(
    py: Python<'_>,
    client: &Pravega,
    name: &str,
    start: i64,
    limit: i64,
    timeout: Option<f64>,
) -> PyResult<i64> {
    let segment = segment(py, name)?;
    block(py, client.core(), timeout, |client, timeout| async move {
        let asking = event_end(&client.pravega, segment, start, limit);
        client.within(timeout, Effect::None, asking).await
    })
}

async fn event_end(pravega: &PeerClient, segment: Segment, start: i64, limit: i64) -> Result<i64, PravegaError> {
    let length = pravega.segment_info(&segment).await?.length;
    let mut until = limit.min(length);
    loop {
        let part = ReadPart {
            segment: segment.clone(),
            start: Start::At(start),
            end: End::At(until),
        };
        let mut reader = pravega.read_parts(&[part]).await?;
        let mut found = None;
        loop {
            match reader.next_batch().await {
                // Looked for behind the limit, the first event is enough.
                Ok(Some(read)) if until > limit => {
                    let has_more = read.batch.record_count() > 1;
                    return Ok(if has_more { read.batch.offset_of(1).0 } else { read.end });
                }
                Ok(Some(read)) => found = Some(read.end),
                Ok(None) => break,
                // Whoever reads this span tells of it.
                Err(error) if error.gap().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(end) = found {
            return Ok(end);
        }
        if until >= length {
            // No event ends there: whoever reads it tells why.
            return Ok(length);
        }
        until = start
            .saturating_add((until - start).saturating_mul(2).max(LOOKED_AT))
            .min(length);
    }
}

fn segment(py: Python<'_>, name: &str) -> PyResult<Segment> {
    Segment::parse(name).ok_or_else(|| errors::invalid(py, &format!("{name:?} is no name of a segment")))
}

/// Events of a segment from one byte up to, not including, another; events begin at both.
#[derive(Clone)]
pub(crate) struct Span {
    segment: Segment,
    start: i64,
    end: i64,
}

/// Reads spans of segments as one Arrow stream.
#[pyfunction]
#[pyo3(signature = (client, spans, projection = None, include_headers = false, timeout = 30.0))]
pub(crate) fn pravega_spans(
    py: Python<'_>,
    client: &Pravega,
    spans: Vec<(String, i64, i64)>,
    projection: Option<Vec<String>>,
    include_headers: bool,
    timeout: f64,
) -> PyResult<PeerSpanReader> {
    let spans = spans.into_iter().map(|(name, start, end)| {
        Ok(Span {
            segment: segment(py, &name)?,
            start,
            end: end.max(start),
        })
    });
    let spans = spans.collect::<PyResult<Vec<_>>>()?;
    let core = Arc::clone(client.core());
    let client = move |py: Python<'_>| {
        Ok(SegmentSpans {
            client: core.owned().get(py)?.clone(),
            reader: None,
            reached: 0,
            _core: Arc::clone(&core),
        })
    };
    PeerSpanReader::of(py, spans, projection.as_deref(), include_headers, timeout, client)
}

/// A client that is read from.
struct SegmentSpans {
    client: PravegaClient,
    reader: Option<Box<Reader>>,
    /// The byte behind the last event of the span.
    reached: i64,
    /// The connections live as long as they are read from.
    _core: Arc<PravegaCore>,
}

impl Spans for SegmentSpans {
    type Span = Span;
    type Error = PravegaError;

    fn bounds(span: &Span) -> (u64, u64) {
        (span.start.cast_unsigned(), span.end.cast_unsigned())
    }

    /// A segment that is sealed may be shorter than it was planned.
    fn passed(&self, span: &Span) -> u64 {
        (self.reached - span.start).cast_unsigned()
    }

    fn is_retriable(error: &PravegaError) -> bool {
        error.is_retriable()
    }

    fn late(&self, limit: Duration) -> Failure {
        late(limit, Effect::None, "server", self.client.pravega.address())
    }

    async fn step(&mut self, span: &Span) -> Result<Option<Piece>, PravegaError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let part = ReadPart {
                    segment: span.segment.clone(),
                    start: Start::At(span.start),
                    end: End::At(span.end),
                };
                let reader = self.client.pravega.read_parts(&[part]).await?;
                self.reached = span.start;
                self.reader.insert(Box::new(reader))
            }
        };
        let Some(read) = reader.next_batch().await? else {
            self.reader = None;
            return Ok(None);
        };
        self.reached = read.end;
        let rows = u64::try_from(read.batch.record_count()).unwrap_or(u64::MAX);
        self.client.counters.events.fetch_add(rows, Ordering::Relaxed);
        Ok(Some(Piece {
            source: Source {
                name: Arc::from(read.segment.to_string()),
                id: StreamId(read.segment.id.0),
            },
            end: read.end.cast_unsigned(),
            batch: read.batch,
        }))
    }
}
