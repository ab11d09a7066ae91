//! Spans of partitions as one Arrow stream, and where partitions begin and end: for Spark.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use sbp_peers::tank::{
    Broker as PeerBroker, End, PartitionBounds, ReadOptions, Reader, Start, TankError, TankErrorKind,
};
use sbp_record::Source;
use sbp_types::StreamId;

use super::broker::{Broker, BrokerCore};
use crate::owner::{Owner, block};
use crate::read::tank::TankClient;
use crate::requests::{Effect, Failure};
use crate::spark::peer_spans::{PeerSpanReader, Piece, Spans};

/// Where the partitions of a topic begin and end, from partition 0 on: the first and the last number. `None` in place of one
/// that nobody serves at the moment, and in place of a topic that there is not.
type TopicBounds = Option<Vec<Option<(u64, u64)>>>;

/// Asks for the bounds of all partitions of these topics, several topics at once.
#[pyfunction]
#[pyo3(signature = (broker, topics, timeout = None))]
pub(crate) fn tank_bounds(
    py: Python<'_>,
    broker: &Broker,
    topics: Vec<String>,
    timeout: Option<f64>,
) -> PyResult<Vec<TopicBounds>> {
    block(py, broker.core(), timeout, |client, timeout| async move {
        let asking = bounds_of(&client.broker, topics);
        client.within(timeout, Effect::None, asking).await
    })
}

/// Asks where a time is in partitions of a topic: the number of the first message that has it or a later one, or the next one to be
/// produced. `None`: nobody serves the partition at the moment.
#[pyfunction]
#[pyo3(signature = (broker, topic, partitions, time_ms, timeout = None))]
pub(crate) fn tank_numbers_at(
    py: Python<'_>,
    broker: &Broker,
    topic: String,
    partitions: Vec<u16>,
    time_ms: u64,
    timeout: Option<f64>,
) -> PyResult<Vec<Option<u64>>> {
    block(py, broker.core(), timeout, |client, timeout| async move {
        let asking = client.broker.numbers_at(&topic, &partitions, time_ms);
        client.within(timeout, Effect::None, asking).await
    })
}

async fn bounds_of(broker: &PeerBroker, topics: Vec<String>) -> Result<Vec<TopicBounds>, TankError> {
    broker.partitions_of(topics).await.into_iter().map(known).collect()
}

fn known(told: Result<Vec<Option<PartitionBounds>>, TankError>) -> Result<TopicBounds, TankError> {
    let pair = |bounds: PartitionBounds| (bounds.first, bounds.high_water);
    match told {
        Ok(partitions) => Ok(Some(partitions.into_iter().map(|one| one.map(pair)).collect())),
        Err(error) if error.kind() == TankErrorKind::UnknownName => Ok(None),
        Err(error) => Err(error),
    }
}

/// Messages of a partition from one number up to, not including, another.
#[derive(Clone)]
pub(crate) struct Span {
    topic: Arc<str>,
    partition: u16,
    start: u64,
    end: u64,
}

/// Reads spans of partitions as one Arrow stream.
#[pyfunction]
#[pyo3(signature = (broker, spans, projection = None, include_headers = false, timeout = 30.0))]
pub(crate) fn tank_spans(
    py: Python<'_>,
    broker: &Broker,
    spans: Vec<(String, u16, u64, u64)>,
    projection: Option<Vec<String>>,
    include_headers: bool,
    timeout: f64,
) -> PyResult<PeerSpanReader> {
    let spans = spans.into_iter().map(|(topic, partition, start, end)| Span {
        topic: Arc::from(topic),
        partition,
        start,
        end: end.max(start),
    });
    let core = Arc::clone(broker.core());
    let client = move |py: Python<'_>| {
        Ok(BrokerSpans {
            client: core.owned().get(py)?.clone(),
            reader: None,
            _core: Arc::clone(&core),
        })
    };
    PeerSpanReader::of(
        py,
        spans.collect(),
        projection.as_deref(),
        include_headers,
        timeout,
        client,
    )
}

/// A broker that is read from.
struct BrokerSpans {
    client: TankClient,
    reader: Option<Box<Reader>>,
    /// The connection lives as long as it is read from.
    _core: Arc<BrokerCore>,
}

impl Spans for BrokerSpans {
    type Span = Span;
    type Error = TankError;

    fn bounds(span: &Span) -> (u64, u64) {
        (span.start, span.end)
    }

    fn is_retriable(error: &TankError) -> bool {
        error.is_retriable()
    }

    fn late(&self, limit: Duration) -> Failure {
        self.client.late(limit, Effect::None)
    }

    async fn step(&mut self, span: &Span) -> Result<Option<Piece>, TankError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let options = ReadOptions {
                    partitions: vec![span.partition],
                    start: Start::At(span.start),
                    end: End::At(span.end),
                };
                let reader = self.client.broker.read(&span.topic, &options).await?;
                self.reader.insert(Box::new(reader))
            }
        };
        let Some(read) = reader.next_batch().await? else {
            self.reader = None;
            return Ok(None);
        };
        self.client.counters.note(&read);
        let last = read.batch.record_count().saturating_sub(1);
        Ok(Some(Piece {
            source: Source {
                name: Arc::from(format!("{}/{}", span.topic, span.partition)),
                id: StreamId(i64::from(span.partition)),
            },
            end: u64::try_from(read.batch.offset_of(last).0).unwrap_or_default() + 1,
            batch: read.batch,
        }))
    }
}
