//! `sbp completions` and `sbp man`: what shells and `man` know of this command, made from its own definition.

use clap::Command;

use crate::args::{Completions, Man};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn completions(asked: &Completions, mut command: Command, terminal: &mut Terminal) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut command, "sbp", &mut script);
    terminal.line(String::from_utf8_lossy(&script).trim_end())
}

pub(crate) fn man(asked: &Man, command: Command, terminal: &mut Terminal) -> Result<(), CliError> {
    let failed = |source| CliError::File {
        path: asked.to.clone(),
        source,
    };
    std::fs::create_dir_all(&asked.to).map_err(failed)?;
    clap_mangen::generate_to(command, &asked.to).map_err(failed)?;
    terminal.line(format_args!("wrote the pages into {}", asked.to.display()))
}
