//! Commands on data directories.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp verify ./data              read everything, say what is damaged
  sbp verify ./data --json       one JSON object, for scripts

Reads every file once and changes none. Checks the checksum of each group, batch, footer, checkpoint and page of the
metadata, that nothing is missing between them, and that bytes nobody wrote are zero. Each damaged place is named with its
file, its bytes, and the streams and offsets that are lost by it.

The exit code is 0 if everything is sound, 3 if something is damaged, 1 if the directory cannot be checked: a server
uses it, or it cannot be read.")]
pub(crate) struct Verify {
    /// The data directory. No server may use it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}
