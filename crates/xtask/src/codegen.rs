//! `cargo xtask codegen`: from the schema to checked-in code.

mod flatc;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::workspace::{Failure, files, root, run};

/// The generated files: their path below the output directory, and their bytes.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn checked_in() -> PathBuf {
    root().join("crates/sbp-schema/src/generated")
}

/// Replaces the checked-in code by what `flatc` makes now.
pub(crate) fn generate() -> Result<(), Failure> {
    let fresh = run_flatc()?;
    let target = checked_in();
    // flatc leaves behind what it no longer makes, so nothing old may stay.
    if target.exists() {
        fs::remove_dir_all(&target).map_err(Failure::file(&target))?;
    }
    for (name, bytes) in &fresh {
        let path = target.join(name);
        let parent = path.parent().unwrap_or(&target);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, bytes))
            .map_err(Failure::file(&path))?;
    }
    println!("codegen: wrote {} files", fresh.len());
    Ok(())
}

/// Compares the checked-in code, byte by byte, with what `flatc` makes now.
pub(crate) fn check() -> Result<(), Failure> {
    let fresh = run_flatc()?;
    let old = read_tree(&checked_in())?;
    let differences = compare(&old, &fresh);
    if differences.is_empty() {
        println!("codegen: {} files are what flatc makes", fresh.len());
        return Ok(());
    }
    let list = differences.join("\n  ");
    Err(Failure::Found(format!(
        "the generated code is not up to date:\n  {list}\nrun: cargo xtask codegen"
    )))
}

/// A line for each file that is missing, left over or different.
fn compare(old: &Tree, fresh: &Tree) -> Vec<String> {
    let names: BTreeSet<_> = old.keys().chain(fresh.keys()).collect();
    let judge = |name: &PathBuf| match (old.get(name), fresh.get(name)) {
        (None, _) => Some("missing"),
        (_, None) => Some("left over"),
        (old, fresh) => (old != fresh).then_some("different"),
    };
    let differ = names.into_iter().filter_map(|name| Some((judge(name)?, name)));
    differ
        .map(|(what, name)| format!("{what}: {}", name.display()))
        .collect()
}

/// Generates into a directory of its own and returns what is there then.
fn run_flatc() -> Result<Tree, Failure> {
    let flatc = flatc::find()?;
    let directory = std::env::temp_dir().join(format!("sbp-codegen-{}", process::id()));
    fs::create_dir_all(&directory).map_err(Failure::file(&directory))?;
    let made = run(Command::new(flatc)
        .args(["--rust", "--rust-module-root-file", "--warnings-as-errors", "-o"])
        .arg(&directory)
        .arg(root().join("schemas/sbp.fbs")));
    let tree = made.and_then(|_| read_tree(&directory));
    fs::remove_dir_all(&directory).map_err(Failure::file(&directory))?;
    tree
}

fn read_tree(directory: &Path) -> Result<Tree, Failure> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).map_err(Failure::file(&path))?;
        Ok((path.strip_prefix(directory).unwrap_or(&path).to_path_buf(), bytes))
    };
    files(directory, "rs")?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tree, compare};

    fn tree(files: &[(&str, &str)]) -> Tree {
        files
            .iter()
            .map(|(name, text)| (name.into(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let old = tree(&[("same", "1"), ("changed", "1"), ("old", "1")]);
        let fresh = tree(&[("same", "1"), ("changed", "2"), ("new", "1")]);
        assert_eq!(
            compare(&old, &fresh),
            ["different: changed", "missing: new", "left over: old"]
        );
        assert!(compare(&old, &old).is_empty());
    }
}
