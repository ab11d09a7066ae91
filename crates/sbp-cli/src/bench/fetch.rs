//! `sbp bench fetch`

use std::sync::Arc;
use std::time::Instant;

use sbp_client::{FetchedBatch, ReaderOptions, Span};
use sbp_messages::Stream;
use sbp_record::{Batch, StreamSchema};
use sbp_types::StreamId;

use super::usage::{cpu_time, cpu_time_since};
use super::{Report, per_second, ratio};
use crate::args::BenchFetch;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

pub(crate) fn run(bench: &BenchFetch, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&bench.connection)?;
    let streams = streams_of(bench, &session)?;
    let ids: Vec<StreamId> = streams.iter().map(|stream| stream.stream_id).collect();
    let mut spans = Vec::new();
    for found in session.wait(session.client.positions(&ids, None))? {
        let found = found?;
        spans.push(Span {
            stream: found.stream,
            start: found.earliest,
            end: found.latest,
        });
    }
    let planned: u64 = spans.iter().map(Span::records).sum();
    if planned == 0 {
        return Err(CliError::Usage(
            "there is nothing to read; run `sbp bench append` first, or name streams".into(),
        ));
    }
    let schemas = streams.iter().map(|stream| match &stream.schema {
        Some(schema) => Ok((stream.stream_id, Some(StreamSchema::from_ipc(schema)?))),
        None => Ok((stream.stream_id, None)),
    });
    let schemas = schemas.collect::<Result<Vec<_>, CliError>>()?;

    let bar = progress(planned, "records");
    let (before, cpu) = (session.client.stats(), cpu_time());
    let begin = Instant::now();
    let mut reader = session.client.reader(spans, ReaderOptions::default());
    let mut counted = Counted::default();
    while let Some(arrived) = session.wait(reader.next_many()) {
        for fetched in arrived? {
            counted.records += fetched.len();
            counted.bytes += u64::try_from(fetched.bytes.len()).unwrap_or(0);
            counted.batches += 1;
            if bench.decode {
                let schema = schemas.iter().find(|(stream, _)| *stream == fetched.stream);
                counted.decode(&fetched, schema.and_then(|(_, schema)| schema.as_ref()))?;
            }
        }
        bar.set_position(counted.records);
    }
    let time = begin.elapsed();
    bar.finish_and_clear();
    let (after, cpu) = (session.client.stats(), cpu_time_since(cpu));

    let Counted {
        records,
        bytes,
        batches,
        rows,
        copied,
    } = counted;
    let mut report = Report::default();
    report.count("streams", u64::try_from(ids.len()).unwrap_or(0));
    report.count("records", records);
    report.count("batches", batches);
    report.number("seconds", time.as_secs_f64());
    report.number("records/s", per_second(records, time));
    report.number("MB/s", per_second(bytes, time) / 1e6);
    if bench.decode {
        report.count("rows decoded", rows);
        report.number("bytes copied/byte", ratio(copied, bytes));
    }
    report.cpu("cpu us/record", cpu, records, bytes);
    report.number("reads/batch", ratio(after.reads - before.reads, batches));
    report.number("wake-ups/batch", ratio(after.wakeups - before.wakeups, batches));
    report.show(bench.json, terminal)
}

/// The streams that are to be read: those named, or all of `sbp bench append`.
fn streams_of(bench: &BenchFetch, session: &Session) -> Result<Vec<Arc<Stream>>, CliError> {
    if bench.streams.is_empty() {
        let all = session.wait(session.client.list_streams(None))?;
        let benched = all.into_iter().filter(|stream| stream.name.starts_with("bench/"));
        return Ok(benched.collect());
    }
    bench.streams.iter().map(|name| session.find(name)).collect()
}

/// What was read.
#[derive(Default)]
struct Counted {
    records: u64,
    bytes: u64,
    batches: u64,
    rows: u64,
    copied: u64,
}

impl Counted {
    /// Makes columns of a batch.
    fn decode(&mut self, fetched: &FetchedBatch, schema: Option<&StreamSchema>) -> Result<(), CliError> {
        let broken = |source| CliError::Batch {
            stream: format!("stream {}", fetched.stream),
            offset: fetched.base_offset.0,
            source,
        };
        let batch = Batch::decode(fetched.bytes.clone(), schema).map_err(broken)?;
        let columns = batch.to_record_batch(fetched.from, fetched.to).map_err(broken)?;
        self.rows += u64::try_from(columns.num_rows()).unwrap_or(0);
        self.copied += u64::try_from(batch.copied_bytes()).unwrap_or(0);
        Ok(())
    }
}
