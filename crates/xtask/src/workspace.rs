//! Where things are, and what can go wrong in a chore.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a chore ended without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file could not be read or written.
    #[error("{path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is no Rust source.
    #[error("{path} cannot be parsed: {source}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: syn::Error,
    },
    /// A program could not be run.
    #[error("cannot run {program}")]
    Run {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{program} failed:\n{output}")]
    Program {
        /// The program.
        program: String,
        /// What it said.
        output: String,
    },
    /// What `cargo metadata` said is not what is expected.
    #[error("cargo metadata is not understood")]
    Metadata(#[from] serde_json::Error),
    /// No `flatc` of the right release.
    #[error("{0}")]
    Flatc(String),
    /// The check was made and found something.
    #[error("{0}")]
    Found(String),
}

impl Failure {
    /// For an error of the operating system with this file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Parses a source file.
pub(crate) fn parse(path: &Path, text: &str) -> Result<syn::File, Failure> {
    syn::parse_file(text).map_err(|source| Failure::Parse {
        path: path.to_owned(),
        source,
    })
}

/// The platform that programs built here run on, by the compiler's name for it.
pub(crate) fn host() -> Result<String, Failure> {
    let told = run(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::Found("rustc does not tell its platform".to_owned()))
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    // crates/xtask, as cargo saw it when this was built.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(Failure::file(path))
}

/// All files below `directory` whose name ends with `extension`, sorted. A directory that is not there has none.
pub(crate) fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(path) = pending.pop() {
        let entries = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(Failure::file(&path))?,
        };
        for entry in entries {
            let entry = entry.map_err(Failure::file(&path))?.path();
            let hidden = entry
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if entry.is_dir() && !hidden {
                pending.push(entry);
            } else if entry.extension().is_some_and(|found| found == extension) {
                found.push(entry);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A path as it is shown: from the repository's root.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Runs a program and returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| Failure::Run {
        program: program.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(Failure::Program { program, output: text })
}
