//! Why an import ended early.

use std::io;
use std::path::{Path, PathBuf};

use sbp_client::ClientError;
use sbp_peers::pravega::PravegaError;
use sbp_peers::tank::TankError;
use thiserror::Error;

/// What is said of every fault on the way.
const GOES_ON: &str = "; what was imported before is stored, and the same import goes on behind it";

/// Why an import ended early. What it has imported is stored, and the same import goes on behind it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The broker, or a bundle of its.
    #[error("{0}{GOES_ON}")]
    Tank(#[from] TankError),
    /// The servers of Pravega, or what they have.
    #[error("{0}{GOES_ON}")]
    Pravega(#[from] PravegaError),
    /// The SBP service.
    #[error("{0}{GOES_ON}")]
    Client(#[from] ClientError),
    /// A file or a directory of a broker.
    #[error("{path}: {source}{GOES_ON}", path = path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of a broker that cannot be read.
    #[error("{path}, behind byte {at}: {what}{GOES_ON}", path = path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// Where its last sound bundle ends.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// A message, or an event, that no stream can hold.
    #[error(
        "what {place} has at {unit} {sequence} cannot be imported: {what}; everything before it is stored. --skip-unfit leaves \
         such records out"
    )]
    Unfit {
        /// What is counted: messages, or bytes.
        unit: &'static str,
        /// The topic and partition, or the stream and the number of a segment.
        place: String,
        /// The message's number, or the event's first byte.
        sequence: u64,
        /// Why not.
        what: String,
    },
    /// What the source has no more.
    #[error(
        "{unit}s {from} to {to} of {place} are gone from the source and were not imported; everything before them is stored. \
         --skip-lost goes on behind them"
    )]
    Lost {
        /// What is counted: messages, or bytes.
        unit: &'static str,
        /// The topic and partition, or the stream and the number of a segment.
        place: String,
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The stream has records that this import did not bring.
    #[error(
        "stream {stream} has records from offset {offset} on that do not come from {source_name}: to import on would mix numbers. \
         Name another stream with --stream, or give the same --source as when the import began"
    )]
    Foreign {
        /// The stream.
        stream: String,
        /// The first such record.
        offset: u64,
        /// What is imported.
        source_name: String,
    },
}

impl ImportError {
    /// For an error of the system about a path.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}
