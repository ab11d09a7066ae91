//! `sbp fetch`

use std::sync::Arc;

use sbp_client::{Decoded, FetchedBatch, ReaderOptions, TailOptions};
use sbp_messages::Stream;
use sbp_record::{StreamSchema, TimeWindow};

use crate::args::{Fetch, FetchFormat};
use crate::error::CliError;
use crate::output::Format;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(fetch: &Fetch, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&fetch.connection)?;
    let stream = session.find(&fetch.stream)?;
    let schema = stream
        .schema
        .as_ref()
        .map(|schema| StreamSchema::from_ipc(schema))
        .transpose()?;
    let mut printer = Printer {
        session: &session,
        terminal,
        stream: Arc::clone(&stream),
        schema,
        format: format(fetch),
        left: fetch.max,
        times: TimeWindow::default(),
    };
    let timeout = Some(fetch.connection.timeout);
    if fetch.follow {
        let position = fetch.from;
        let options = TailOptions {
            timeout,
            ..TailOptions::default()
        };
        let mut tail = session.wait(session.client.tail(&[(stream.stream_id, position)], options))?;
        while let Some(batches) = session.wait(tail.next_many()) {
            for batch in batches? {
                if !printer.print(&batch)? {
                    return Ok(());
                }
            }
            printer.terminal.flush()?;
        }
        return Ok(());
    }
    let wanted = [(stream.stream_id, fetch.from, fetch.to)];
    let windows = session.wait(session.client.windows(&wanted, timeout))?;
    let spans = windows.iter().map(|window| window.span).collect();
    printer.times = windows.first().map(|window| window.times).unwrap_or_default();
    let options = ReaderOptions {
        timeout,
        ..ReaderOptions::default()
    };
    let mut reader = session.client.reader(spans, options);
    while let Some(batch) = session.wait(reader.next()) {
        if !printer.print(&batch?)? {
            break;
        }
    }
    printer.terminal.flush()
}

/// Prints records, and counts down those that are still wanted.
struct Printer<'a> {
    session: &'a Session,
    terminal: &'a mut Terminal,
    stream: Arc<Stream>,
    schema: Option<StreamSchema>,
    format: Format,
    left: Option<u64>,
    /// Records of other times are left out.
    times: TimeWindow,
}

impl Printer<'_> {
    /// Returns whether more is wanted.
    fn print(&mut self, fetched: &FetchedBatch) -> Result<bool, CliError> {
        let stream = Arc::clone(&self.stream);
        let broken = |source| CliError::Batch {
            stream: stream.name.clone(),
            offset: fetched.base_offset.0,
            source,
        };
        let client = &self.session.client;
        let decoding = client.decode(fetched, fetched.bytes.clone(), self.schema.as_ref(), None);
        let Decoded { batch, newer } = self.session.wait(decoding)?;
        if let Some(message) = newer.and_then(|newer| newer.schema.clone()) {
            self.schema = Some(StreamSchema::from_ipc(&message)?);
        }
        for (from, to) in batch.runs_within(fetched.from, fetched.to, self.times) {
            if batch.is_typed() {
                let rows = batch.to_record_batch(from, to).map_err(broken)?;
                let wanted = self.take(rows.num_rows());
                let time = batch.head().meta.base_timestamp;
                self.format.rows(&rows.slice(0, wanted), from, time, self.terminal)?;
            } else {
                for record in batch.records().map_err(broken)?.between(from, to) {
                    if self.take(1) == 0 {
                        break;
                    }
                    self.format.record(&record, self.terminal)?;
                }
            }
            if self.left == Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many of so many records are still wanted. They count as printed.
    fn take(&mut self, records: usize) -> usize {
        let Some(left) = &mut self.left else { return records };
        let taken = records.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= taken as u64;
        taken
    }
}

fn format(fetch: &Fetch) -> Format {
    match fetch.format {
        FetchFormat::Json => Format::Json,
        _ if fetch.json => Format::Json,
        FetchFormat::Text => Format::Text,
        FetchFormat::Raw => Format::Raw {
            delimiter: fetch.delimiter.clone().into_bytes(),
        },
    }
}
