//! `sbp import`

use std::thread;

use sbp_gateway::import::{
    ImportFrom, ImportOptions, ImportReport, PartitionReport, PravegaFrom, Progress, import_pravega, import_tank,
};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::oneshot;

use crate::args::{Import, ImportPravega, ImportSource, ImportTank, ImportedHow};
use crate::command::append::compression;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

pub(crate) fn run(import: Import, terminal: &mut Terminal) -> Result<(), CliError> {
    match import.source {
        ImportSource::Tank(tank) => from_tank(*tank, terminal),
        ImportSource::Pravega(pravega) => from_pravega(*pravega, terminal),
    }
}

fn from_tank(asked: ImportTank, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.how.connection)?;
    let (from, unit) = match (asked.from, asked.from_dir) {
        (Some(address), _) => (ImportFrom::Broker(address), "messages"),
        // The arguments ask for one of the two.
        (None, directory) => (ImportFrom::Directory(directory.unwrap_or_default()), "bytes"),
    };
    let options = ImportOptions {
        partitions: asked.partitions,
        stream: asked.stream,
        ..options(&asked.how, asked.topic)
    };
    let report = import(&session, &Origin::Tank(from), unit, &options)?;
    tell(&report, &TANK, asked.how.json, terminal)
}

fn from_pravega(asked: ImportPravega, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.how.connection)?;
    let from = match (asked.from, asked.from_segment_store) {
        (Some(controller), _) => PravegaFrom::Controller(controller),
        // The arguments ask for one of the two.
        (None, store) => PravegaFrom::SegmentStore(store.unwrap_or_default()),
    };
    let options = options(&asked.how, asked.stream);
    let report = import(&session, &Origin::Pravega(from), "bytes", &options)?;
    tell(&report, &PRAVEGA, asked.how.json, terminal)
}

fn options(how: &ImportedHow, topic: String) -> ImportOptions {
    ImportOptions {
        topic,
        partitions: Vec::new(),
        stream: None,
        source: how.source.clone(),
        follow: how.follow,
        skip_unfit: how.skip_unfit,
        skip_lost: how.skip_lost,
        compression: compression(how.compression),
        patience: how.connection.timeout,
    }
}

/// What is imported from.
enum Origin {
    Tank(ImportFrom),
    Pravega(PravegaFrom),
}

/// Runs an import until it ends, or SIGINT or SIGTERM asks it to, and shows how far it is.
fn import(session: &Session, from: &Origin, unit: &str, options: &ImportOptions) -> Result<ImportReport, CliError> {
    let (interrupted, stop) = oneshot::channel::<()>();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CliError::system("watch signals"))?;
    let handle = signals.handle();
    let watcher = thread::Builder::new().name("sbp-signals".to_owned()).spawn(move || {
        // Ends without a signal when the handle is closed below.
        let mut forever = signals.forever();
        if forever.next().is_some() {
            let _ = interrupted.send(());
        }
        // Who asks twice does not want to wait for what is on its way.
        if let Some(signal) = forever.next() {
            drop(emulate_default_handler(signal));
        }
    });
    let watcher = watcher.map_err(CliError::system("start a thread"))?;
    let bar = progress(0, unit);
    let stop = async {
        if stop.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let shown = |now: Progress| {
        bar.set_length(now.all);
        bar.set_position(now.done);
    };
    let imported = match from {
        Origin::Tank(from) => session.wait(import_tank(&session.client, from, options, stop, shown)),
        Origin::Pravega(from) => session.wait(import_pravega(&session.client, from, options, stop, shown)),
    };
    bar.finish_and_clear();
    handle.close();
    drop(watcher.join());
    Ok(imported?)
}

/// What is said of the streams of one protocol.
struct Words {
    /// The head of the column with what became a stream.
    part: &'static str,
    /// What is said of a count behind it: of what was left out, what did not fit, and what was gone.
    counts: [&'static str; 3],
    name: fn(&PartitionReport) -> String,
}

const TANK: Words = Words {
    part: ">PARTITION",
    counts: [
        "numbers have no message: the broker has compacted the topic",
        "messages were left out because no stream can hold them",
        "messages were gone from the source before they were imported",
    ],
    name: |report| report.partition.to_string(),
};

const PRAVEGA: Words = Words {
    part: "SEGMENT",
    counts: [
        "bytes were left out",
        "events were left out because no stream can hold them",
        "bytes were gone from the source before they were imported",
    ],
    name: |report| {
        let (number, epoch) = (report.partition & 0xffff_ffff, report.partition >> 32);
        format!("{number}.#epoch.{epoch}")
    },
};

fn tell(report: &ImportReport, words: &Words, as_json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    for note in &report.notes {
        terminal.warn(note);
    }
    if as_json {
        for partition in &report.partitions {
            terminal.line(to_json(partition))?;
        }
        return terminal.flush();
    }
    let header = [words.part, "STREAM", ">IMPORTED", ">FIRST", ">LAST", ">RECORDS"];
    let rows = report
        .partitions
        .iter()
        .map(|partition| row(partition, words))
        .collect();
    terminal.table(&header, rows)?;
    for partition in &report.partitions {
        let counts = [partition.left_out, partition.unfit, partition.lost];
        for (count, what) in counts.into_iter().zip(words.counts).filter(|(count, _)| *count > 0) {
            terminal.line(format_args!("{}: {count} {what}", partition.stream))?;
        }
    }
    terminal.flush()
}

fn row(partition: &PartitionReport, words: &Words) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    vec![
        (words.name)(partition),
        partition.stream.clone(),
        partition.imported.to_string(),
        number(partition.first),
        number(partition.last),
        (partition.before + partition.imported).to_string(),
    ]
}

fn to_json(partition: &PartitionReport) -> serde_json::Value {
    json!({
        "partition": partition.partition,
        "stream": partition.stream,
        "stream_id": partition.stream_id.0,
        "before": partition.before,
        "imported": partition.imported,
        "first": partition.first,
        "last": partition.last,
        "left_out": partition.left_out,
        "unfit": partition.unfit,
        "lost": partition.lost,
    })
}
