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
file, its bytes, and the streams and offsets that are lost by it. Damage that the server has found before, and whose records it
answers with 2502, is told apart as known.

The exit code is 0 if everything is sound, 3 if something is damaged, 4 if nothing is but what the server knew of, 1 if the
directory cannot be checked: a server uses it, or it cannot be read.")]
pub(crate) struct Verify {
    /// The data directory. No server may use it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp backup ./data --to /backups/monday          while the server runs, on its machine
  sbp backup 127.0.0.1:2378 --to /backups/monday  the directory of the server that listens there
  sbp backup ./data --to /backups/tuesday         what has not changed since is linked again, and takes no room
  sbp backup ./data --to /mnt/disk/monday         to another file system: everything is copied
  sbp verify /backups/monday                      read all of it, say what is damaged

The backup is one moment of the server: every record of every stream up to an end that is printed for each, the state of
writers, named cursors, and the streams themselves. All that was acknowledged before the command began is in it. It stands
under its name only when it is whole; its manifest.json tells the ends and the files. Servers of a cluster are backed up each
by itself, and not to the same moment.

Files of the log that never change again are linked where the backup is on the same file system: damage to such a file is
damage to both. --copy copies them.

An address is one at which a process of this machine listens. That process is not asked for anything: the kernel says which
data directory it has open, to its user and to root.")]
pub(crate) struct Backup {
    /// The data directory of a server of this machine, the address at which the server listens, or another backup.
    #[arg(value_name = "DATA-DIR|ADDRESS")]
    pub(crate) source: PathBuf,
    /// The backup, a directory that is made. An empty one may be there, also where a disk is mounted.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Copy what could be linked.
    #[arg(long)]
    pub(crate) copy: bool,
    /// One JSON object, the manifest, instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp restore /backups/monday --to ./data         then: sbp serve --data-dir ./data
  sbp restore /backups/monday --to ./data --with-damage     what is left of a damaged one

Checks every checksum of the backup first, and restores nothing from a damaged one, unless --with-damage says so. Everything is
copied, and belongs to the user who restores: let it be the server's. The restored server is the old one at the backup's moment,
with its number: do not run both, and where it belongs to a cluster, put it back in the place of the old one.

The exit code is 0 if everything was restored, 3 if the backup is damaged, also where --with-damage restored the rest of it,
and 1 if nothing could be restored for another reason.")]
pub(crate) struct Restore {
    /// The backup.
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
    /// The data directory, which is made. An empty one may be there.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Restore also a damaged backup: what is lost is named, and the restored server answers reads of it with 2502.
    #[arg(long)]
    pub(crate) with_damage: bool,
    /// Let a range server whose metadata are elsewhere keep its number, so that it is taken for the one that was backed up. Only where
    /// no other server has its ranges: what it has acknowledged since the backup is lost then.
    #[arg(long)]
    pub(crate) keep_number: bool,
    /// One JSON object, the manifest, instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}
