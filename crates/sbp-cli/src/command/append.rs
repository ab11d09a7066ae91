//! `sbp append`

use std::fs;
use std::io::{BufRead, IsTerminal};

use sbp_client::{AppendOptions, Records};
use sbp_messages::Stream;
use sbp_record::StreamSchema;
use sbp_types::{Offset, StreamId};

use crate::args::{Append, AppendFormat, Compression};
use crate::error::CliError;
use crate::input::{Lines, NumberedLines, RecordLines, RowLines};
use crate::session::Session;
use crate::terminal::{Terminal, progress};

/// A batch is closed when it has grown to this, however few lines it holds.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) fn run(append: Append, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&append.connection)?;
    let stream = session.find(&append.stream)?;
    let mut options = AppendOptions {
        compression: compression(append.compression),
        expected_offset: append.expected_offset.map(Offset),
        ..AppendOptions::default()
    };
    if let Some(path) = &append.file {
        let content = fs::read(path).map_err(|source| CliError::File {
            path: path.clone(),
            source,
        })?;
        let records = Records::from(content);
        return send(
            &session,
            stream.stream_id,
            records,
            &mut options,
            append.quiet,
            terminal,
        );
    }
    let mut lines = NumberedLines::new(lines(&append, &stream)?);
    if !append.data.is_empty() {
        for record in &append.data {
            lines.push(record.as_bytes())?;
        }
        let records = lines.take(stream.stream_id, &options)?;
        return send(
            &session,
            stream.stream_id,
            records,
            &mut options,
            append.quiet,
            terminal,
        );
    }
    let input = std::io::stdin();
    let bar = (!input.is_terminal()).then(|| progress(0, "records"));
    // Somebody who types wants each line to go out.
    let batch = if input.is_terminal() { 1 } else { append.batch.max(1) };
    let mut input = input.lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(CliError::Input)?;
        if read > 0 {
            let record = line.strip_suffix(b"\n").unwrap_or(&line);
            lines.push(record.strip_suffix(b"\r").unwrap_or(record))?;
        }
        let full = lines.len() >= batch || lines.bytes() >= BATCH_BYTES;
        if lines.len() > 0 && (full || read == 0) {
            let count = u64::try_from(lines.len()).unwrap_or(0);
            let records = lines.take(stream.stream_id, &options)?;
            send(
                &session,
                stream.stream_id,
                records,
                &mut options,
                append.quiet,
                terminal,
            )?;
            if let Some(bar) = &bar {
                bar.inc_length(count);
                bar.inc(count);
            }
        }
        if read == 0 {
            break;
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(())
}

/// What a line is for this stream.
fn lines(append: &Append, stream: &Stream) -> Result<Box<dyn Lines>, CliError> {
    let is_json = append.format == AppendFormat::Json;
    let Some(schema) = &stream.schema else {
        let (key, headers) = (append.key.clone(), append.headers.clone());
        return Ok(Box::new(RecordLines::new(is_json, key, headers)));
    };
    if !is_json || append.key.is_some() || !append.headers.is_empty() {
        return Err(CliError::Usage(format!(
            "the records of {} are rows of columns, which have no keys and no headers: give them with --format json, one \
             object in a line of standard input",
            stream.name
        )));
    }
    Ok(Box::new(RowLines::new(StreamSchema::from_ipc(schema)?)))
}

/// Appends a batch; one that expects an offset makes the next expect the one behind it.
fn send(
    session: &Session,
    stream: StreamId,
    records: Records,
    options: &mut AppendOptions,
    quiet: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let ack = session.wait(session.client.append(stream, records, options))?;
    // What follows has to be right behind.
    if options.expected_offset.is_some() {
        options.expected_offset = ack.last_offset().map(|last| Offset(last.0 + 1));
    }
    if !quiet {
        terminal.line(format_args!("{ack}, durability {}", ack.durability.as_str()))?;
        terminal.flush()?;
    }
    Ok(())
}

pub(crate) fn compression(asked: Compression) -> sbp_record::Compression {
    match asked {
        Compression::None => sbp_record::Compression::NONE,
        Compression::Lz4 => sbp_record::Compression::LZ4,
        Compression::Zstd => sbp_record::Compression::ZSTD,
    }
}
