//! Lines that become batches.

mod records;
mod rows;

use sbp_client::{AppendOptions, Records};
use sbp_types::StreamId;

pub(crate) use self::records::RecordLines;
pub(crate) use self::rows::RowLines;
use crate::error::CliError;

/// Lines of one kind, gathered until they are taken as a batch.
pub(crate) trait Lines {
    /// Adds a line, which has no newline at its end.
    ///
    /// # Errors
    /// What is wrong with the line; nothing was added then.
    fn push(&mut self, line: &[u8]) -> Result<(), String>;

    /// How many lines wait.
    fn len(&self) -> usize;

    /// About as many bytes their batch will have.
    fn bytes(&self) -> usize;

    /// Takes what waits, which is not nothing, as one batch.
    ///
    /// # Errors
    /// What is wrong, and for which of the lines, counted from 0.
    fn take(&mut self, stream: StreamId, options: &AppendOptions) -> Result<Records, (usize, String)>;
}

/// Lines with the numbers that an editor gives them, for what is said of them.
pub(crate) struct NumberedLines {
    lines: Box<dyn Lines>,
    /// The number of the last line.
    last: usize,
}

impl NumberedLines {
    pub(crate) fn new(lines: Box<dyn Lines>) -> Self {
        Self { lines, last: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), CliError> {
        self.last += 1;
        let number = self.last;
        self.lines
            .push(line)
            .map_err(|reason| CliError::Line { number, reason })
    }

    pub(crate) fn take(&mut self, stream: StreamId, options: &AppendOptions) -> Result<Records, CliError> {
        let before = self.last - self.lines.len();
        let number = |line| before + line + 1;
        let taken = self.lines.take(stream, options);
        taken.map_err(|(line, reason)| CliError::Line {
            number: number(line),
            reason,
        })
    }
}
