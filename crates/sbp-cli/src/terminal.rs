//! What people see: lines, tables, progress.

use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::CliError;

/// Standard output, buffered, and standard error for what is not output.
#[derive(Debug)]
pub(crate) struct Terminal {
    out: BufWriter<Stdout>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        Self {
            out: BufWriter::new(io::stdout()),
        }
    }

    /// Writes a line of output; it appears at the next [`Terminal::flush`].
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), CliError> {
        writeln!(self.out, "{text}").map_err(CliError::Output)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out.write_all(bytes).map_err(CliError::Output)
    }

    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        self.out.flush().map_err(CliError::Output)
    }

    /// Writes a table whose columns marked with `>` are numbers.
    pub(crate) fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>) -> Result<(), CliError> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let is_number = |column: usize| header.get(column).is_some_and(|title| title.starts_with('>'));
        let titles = header.iter().map(|title| title.trim_start_matches('>'));
        if titles.clone().any(|title| !title.is_empty()) {
            table.set_header(titles);
        }
        for row in rows {
            let cells = row.into_iter().enumerate().map(|(column, text)| {
                let alignment = if is_number(column) {
                    CellAlignment::Right
                } else {
                    CellAlignment::Left
                };
                Cell::new(text).set_alignment(alignment)
            });
            table.add_row(cells);
        }
        self.line(table.trim_fmt())?;
        self.flush()
    }

    /// Says what was done and is probably not meant.
    pub(crate) fn warn(&mut self, caution: &str) {
        let _ = self.out.flush();
        let _ = writeln!(io::stderr(), "warning: {caution}");
    }

    /// Says why the command failed.
    pub(crate) fn complain(&mut self, error: &CliError) {
        // Nothing can be done about a terminal that takes no words.
        let _ = self.out.flush();
        let _ = writeln!(io::stderr(), "error: {error}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.out.flush();
    }
}

/// A bar on standard error; nothing where that is no terminal.
pub(crate) fn progress(length: u64, unit: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{human_pos}}/{{human_len}} {unit} {{per_sec}} {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_invalid| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
