//! `sbp cursor` on the command line.

use clap::{Args, Subcommand};
use sbp_client::Position;

use super::Connection;
use crate::when::parse_position;

#[derive(Args, Debug)]
pub(crate) struct Cursor {
    #[command(subcommand)]
    pub(crate) action: CursorAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CursorAction {
    /// List the cursors there are.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show where a cursor is in each of its streams, and how many records are behind it.
    Show {
        #[command(flatten)]
        connection: Connection,
        /// The cursor's name.
        name: String,
        /// One JSON object per stream instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Set a cursor to a place in streams, and make it if there is none. A job that holds it now is refused its next
    /// commit: stop it first, or let it start anew.
    Set {
        #[command(flatten)]
        connection: Connection,
        /// The cursor's name.
        name: String,
        /// Names or numbers of streams.
        #[arg(required = true)]
        streams: Vec<String>,
        /// The first record that is not done: an offset, a time, earliest, latest, latest-100 or -1h.
        #[arg(long, value_name = "WHERE", value_parser = parse_position, allow_hyphen_values = true)]
        to: Position,
        /// Also for a stream that has the number of another one, for which a place was committed before the server lost
        /// its data or was set up anew: the old place is given up.
        #[arg(long)]
        replaced: bool,
    },
    /// Forget a cursor: a job of that name begins anew.
    Forget {
        #[command(flatten)]
        connection: Connection,
        /// The cursor's name.
        name: String,
    },
}
