//! `sbp import` on the command line.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::{Compression, Connection};

#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) source: ImportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportSource {
    /// Import a topic of a TANK broker: from the running broker, or from its files.
    Tank(Box<ImportTank>),
    /// Import a stream of Pravega.
    Pravega(Box<ImportPravega>),
}

/// What all imports are told.
#[derive(Args, Debug)]
pub(crate) struct ImportedHow {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// What the source is called, by which a second run knows what the first one has stored; its address or path when not
    /// given.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) source: Option<String>,
    /// Go on when the end is reached, as more arrives, until SIGINT or SIGTERM.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Leave out what no stream can hold, because it has more than 16 MB: each is logged, and they are counted. Without it the
    /// first one ends the import.
    #[arg(long)]
    pub(crate) skip_unfit: bool,
    /// Go on behind what the source no longer has, such as what its retention has removed since the last run. Without it the
    /// import ends there.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    /// How batches are compressed in the streams.
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(crate) compression: Compression,
    /// One JSON object for each stream instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp import pravega shop/orders --from 10.0.0.5:9090             all segments, up to where they end now
  sbp import pravega shop/orders --from 10.0.0.5:9090 --follow    and on, as writers write, until interrupted

Segment N of stream SCOPE/STREAM becomes stream SCOPE/STREAM/N, made if it is not there; it keeps its records for ever, until
`sbp stream update` says otherwise. Make the streams yourself before if they are to have other settings, such as several copies,
with --property pravega=segment. Each event becomes a record, in the order of its segment; the segments that follow others when
the stream was scaled are imported when those are done. The first record of each batch says in the header pravega.at which byte
of the segment the batch begins with, so that the bytes and their places stay as they are. Pravega keeps neither routing keys nor
times with its events: records have no key, and the time of the import.

Each event is stored once, however often the command is ended, killed or started again: it goes on behind what is stored. It
knows what it has stored by the stream and by the name of the source; if the servers move, give the old name with --source.")]
pub(crate) struct ImportPravega {
    #[command(flatten)]
    pub(crate) how: ImportedHow,
    /// The stream, as SCOPE/STREAM.
    #[arg(value_name = "SCOPE/STREAM", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: String,
    /// The controller.
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "from_segment_store",
        conflicts_with = "from_segment_store"
    )]
    pub(crate) from: Option<String>,
    /// The segment store, where there is no controller: the stream is its segments 0.#epoch.0, 1.#epoch.0 and so on.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) from_segment_store: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp import tank orders --from 10.0.0.5:11011             all partitions, up to where they end now
  sbp import tank orders --from 10.0.0.5:11011 --follow    and on, as producers write, until interrupted
  sbp import tank orders --from-dir /var/lib/tank          from the files of a broker, which need not run
  sbp import tank orders --from 10.0.0.5:11011 --partition 3 --stream archive/orders

Partition P of topic T becomes stream T/P, made if it is not there; it keeps its records for ever, until `sbp stream update`
says otherwise. Make the streams yourself before if they are to have other settings, such as several copies. Keys, times and
the order stay as they are. The number of a message is the record's offset plus the stream's property tank.first; where a
topic has gaps, because its broker has compacted it, the record's header tank.seq instead, from the offset on that the
property tank.sparse says.

Each message is stored once, however often the command is ended, killed or started again: it goes on behind what is stored.
It knows what it has stored by the stream and by the name of the source; if the broker moves, give the old name with --source.")]
pub(crate) struct ImportTank {
    #[command(flatten)]
    pub(crate) how: ImportedHow,
    /// The topic.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) topic: String,
    /// The running broker.
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "from_dir",
        conflicts_with = "from_dir"
    )]
    pub(crate) from: Option<String>,
    /// The data directory of a broker, in which each topic has a directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) from_dir: Option<PathBuf>,
    /// A partition, may be given several times; all when none is given.
    #[arg(long = "partition", value_name = "NUMBER")]
    pub(crate) partitions: Vec<u16>,
    /// The stream, when one partition is imported.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: Option<String>,
}
