//! `sbp append`

use std::fs;
use std::io::{BufRead, IsTerminal};

use sbp_client::{Ack, AppendOptions, Records};
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};

use crate::args::{Append, Compression};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

/// A batch is closed when it has grown to this, however few lines it holds.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) fn run(append: Append, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&append.connection)?;
    let stream = session.find(&append.stream)?.stream_id;
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
        return send(&session, stream, content.into(), &mut options, append.quiet, terminal);
    }
    let key = append.key.as_deref().map(str::as_bytes);
    let mut builder = RecordsBuilder::new();
    if !append.data.is_empty() {
        for record in &append.data {
            push(&mut builder, record.as_bytes(), key)?;
        }
        return send(&session, stream, builder.into(), &mut options, append.quiet, terminal);
    }
    let input = std::io::stdin();
    let bar = (!input.is_terminal()).then(|| progress(0, "records"));
    // Somebody who types wants each line to go out.
    let batch = if input.is_terminal() { 1 } else { append.batch.max(1) };
    let mut lines = input.lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line).map_err(CliError::Input)?;
        if read > 0 {
            let record = line.strip_suffix(b"\n").unwrap_or(&line);
            push(&mut builder, record.strip_suffix(b"\r").unwrap_or(record), key)?;
        }
        let full = builder.len() >= batch || builder.body_length() >= BATCH_BYTES;
        if !builder.is_empty() && (full || read == 0) {
            let records = builder.len();
            let batch = std::mem::take(&mut builder);
            send(&session, stream, batch.into(), &mut options, append.quiet, terminal)?;
            if let Some(bar) = &bar {
                bar.inc_length(u64::try_from(records).unwrap_or(0));
                bar.inc(u64::try_from(records).unwrap_or(0));
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

fn push(builder: &mut RecordsBuilder, value: &[u8], key: Option<&[u8]>) -> Result<(), CliError> {
    builder
        .push(Some(value), key, None, &[])
        .map_err(|error| CliError::Usage(error.to_string()))
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
    let Ack {
        base_offset,
        last_offset,
        durability,
        ..
    } = session.wait(session.client.append(stream, records, options))?;
    // What follows has to be right behind.
    options.expected_offset = options.expected_offset.map(|_| Offset(last_offset.0 + 1));
    if !quiet {
        let durability = durability.as_str();
        terminal.line(format_args!(
            "stored at {base_offset} to {last_offset}, durability {durability}"
        ))?;
        terminal.flush()?;
    }
    Ok(())
}

fn compression(asked: Compression) -> sbp_record::Compression {
    match asked {
        Compression::None => sbp_record::Compression::NONE,
        Compression::Lz4 => sbp_record::Compression::LZ4,
        Compression::Zstd => sbp_record::Compression::ZSTD,
    }
}
