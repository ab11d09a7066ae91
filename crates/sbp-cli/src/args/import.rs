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
    pub(crate) connection: Connection,
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
    /// What the source is called, by which a second run knows what the first one has stored; its address or path when not
    /// given.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) source: Option<String>,
    /// Go on when the end is reached, as messages arrive, until SIGINT or SIGTERM.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Leave out messages that no stream can hold, because they have more than 16 MB: each is logged, and they are counted.
    /// Without it the first one ends the import.
    #[arg(long)]
    pub(crate) skip_unfit: bool,
    /// Go on behind messages that the source no longer has, such as those that its retention has removed since the last run.
    /// Without it they end the import.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    /// How batches are compressed in the streams.
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(crate) compression: Compression,
    /// One JSON object for each partition instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}
