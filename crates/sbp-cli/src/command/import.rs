//! `sbp import`

use std::thread;

use sbp_gateway::import::{ImportFrom, ImportOptions, ImportReport, PartitionReport, import_tank};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::oneshot;

use crate::args::{Import, ImportSource, ImportTank};
use crate::command::append::compression;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

pub(crate) fn run(import: Import, terminal: &mut Terminal) -> Result<(), CliError> {
    match import.source {
        ImportSource::Tank(tank) => from_tank(*tank, terminal),
    }
}

fn from_tank(asked: ImportTank, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let (from, unit) = match (asked.from, asked.from_dir) {
        (Some(address), _) => (ImportFrom::Broker(address), "messages"),
        // The arguments ask for one of the two.
        (None, directory) => (ImportFrom::Directory(directory.unwrap_or_default()), "bytes"),
    };
    let options = ImportOptions {
        topic: asked.topic,
        partitions: asked.partitions,
        stream: asked.stream,
        source: asked.source,
        follow: asked.follow,
        skip_unfit: asked.skip_unfit,
        skip_lost: asked.skip_lost,
        compression: compression(asked.compression),
        patience: asked.connection.timeout,
    };
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
    let imported = session.wait(import_tank(&session.client, &from, &options, stop, |now| {
        bar.set_length(now.all);
        bar.set_position(now.done);
    }));
    bar.finish_and_clear();
    handle.close();
    drop(watcher.join());
    tell(&imported?, asked.json, terminal)
}

fn tell(report: &ImportReport, as_json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    for note in &report.notes {
        terminal.warn(note);
    }
    if as_json {
        for partition in &report.partitions {
            terminal.line(to_json(partition))?;
        }
        return terminal.flush();
    }
    let header = [">PARTITION", "STREAM", ">IMPORTED", ">FIRST", ">LAST", ">RECORDS"];
    let rows = report.partitions.iter().map(row).collect();
    terminal.table(&header, rows)?;
    for partition in &report.partitions {
        let counts = [
            (
                partition.left_out,
                "numbers have no message: the broker has compacted the topic",
            ),
            (
                partition.unfit,
                "messages were left out because no stream can hold them",
            ),
            (
                partition.lost,
                "messages were gone from the source before they were imported",
            ),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            terminal.line(format_args!("{}: {count} {what}", partition.stream))?;
        }
    }
    terminal.flush()
}

fn row(partition: &PartitionReport) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    vec![
        partition.partition.to_string(),
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
