//! Why a command failed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::ArrowError;
use sbp_client::{ClientError, ConfigError};
use sbp_record::{BatchError, SchemaError};
use sbp_server::access::AccessError;
use sbp_server::{ServerFailure, ShutdownError, StartError};

/// Why a command failed, in the words that are shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Tank(#[from] sbp_gateway::tank::TankError),
    #[error(transparent)]
    Import(#[from] sbp_gateway::import::ImportError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Backup(#[from] sbp_server::BackupError),
    #[error(transparent)]
    Proxy(#[from] sbp_proxy::ProxyError),
    #[error(transparent)]
    Ask(#[from] sbp_http::AskError),
    #[error("the server stopped because {0}")]
    Failed(Arc<ServerFailure>),
    #[error("the server ended, but not cleanly: {0}")]
    Shutdown(#[from] ShutdownError),
    #[error("{stream}: a batch at offset {offset} cannot be read: {source}")]
    Batch {
        stream: String,
        offset: i64,
        source: BatchError,
    },
    #[error("the stream's schema cannot be read: {0}")]
    Schema(#[from] SchemaError),
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("standard input: {0}")]
    Input(#[source] io::Error),
    #[error("line {number}: {reason}; what was printed is stored, and nothing of what follows")]
    Line { number: usize, reason: String },
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(
        "{directory} is damaged in {faults} place(s): what is named above cannot be read, everything else can; restore \
         a backup, or start on it and read around the damage",
        directory = directory.display()
    )]
    Damaged { directory: PathBuf, faults: usize },
    #[error(
        "{directory} is damaged in {faults} place(s), all of which its server knew of: it serves everything else, and nothing \
         new is damaged",
        directory = directory.display()
    )]
    KnownDamage { directory: PathBuf, faults: usize },
    #[error(
        "{directory} was restored with the damage of its backup, in {faults} place(s): what is named above cannot be read, \
         everything else can",
        directory = directory.display()
    )]
    RestoredDamage { directory: PathBuf, faults: usize },
    #[error(
        "the list is whole, but where {count} of {of} streams begin and end could not be asked:{}",
        lines(unknown), count = unknown.len()
    )]
    UnknownPositions { unknown: Vec<ClientError>, of: usize },
    #[error("{address}: {reason}")]
    NoLocalServer { address: String, reason: String },
    #[error("{0}")]
    Usage(String),
}

/// Each error in a line of its own.
fn lines(errors: &[ClientError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}

impl CliError {
    /// For an error of the operating system: what could not be done.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// Columns could not be converted.
    pub(crate) fn columns(error: ArrowError) -> Self {
        Self::Usage(error.to_string())
    }

    /// The exit code of a command that ends with this.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Damaged { .. }
            | Self::RestoredDamage { .. }
            | Self::Backup(sbp_server::BackupError::Damaged { .. }) => 3,
            Self::KnownDamage { .. } => 4,
            _ => 1,
        }
    }

    /// Whether the reader of our output has gone, which ends a command quietly.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
