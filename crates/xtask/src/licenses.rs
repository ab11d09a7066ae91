//! `cargo xtask licenses`: the licences of other people's crates that are compiled into the wheel.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use spdx::{Expression, LicenseReq, ParseMode};

use crate::graph::{self, Package};
use crate::workspace::{Failure, read, root};

/// Licences under which a crate may become a part of the wheel: they ask for their text and the names of their authors, and
/// nothing else. `LLVM-exception` and the like only ever allow more.
const ALLOWED: [&str; 11] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// How the names of files with licences begin, in capitals.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];

/// Where the texts are put: package data of the wheel.
const TEXTS: &str = "python/sbp_native/THIRD-PARTY-LICENSES.txt";

/// Checks that each crate in the wheel has a licence that is allowed.
pub(crate) fn check() -> Result<(), Failure> {
    let graph = graph::load()?;
    let count = expressions(&others(&graph))?.len();
    println!("licenses: {count} crates of others are in the wheel, each under a licence that is allowed");
    Ok(())
}

/// Makes the same check, and writes the texts of all of them into one file.
pub(crate) fn write() -> Result<(), Failure> {
    let graph = graph::load()?;
    let others = others(&graph);
    // One text of many crates stands there once, below their names.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (package, expression) in others.iter().zip(expressions(&others)?) {
        let name = format!("{} {} ({expression})", package.name, package.version);
        for text in texts_of(package, &expression)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut page = String::from("sbp-native contains the following crates, each under the terms below its name.\n");
    let mut sections: Vec<_> = texts.into_iter().collect();
    sections.sort_by(|one, other| one.1.cmp(&other.1));
    for (text, names) in sections {
        let rule = "=".repeat(100);
        let _ = write!(page, "\n{rule}\n{}\n{rule}\n\n{text}\n", names.join("\n"));
    }
    let path = root().join(TEXTS);
    std::fs::write(&path, page).map_err(Failure::file(&path))
}

/// The crates of others that end up in the wheel, by name and version.
fn others(graph: &graph::Graph) -> Vec<&Package> {
    let mut wheel = graph.members().filter(|package| package.name == "sbp-python");
    let all = wheel.next().map(|package| graph.closure(package)).unwrap_or_default();
    let ours: Vec<_> = graph
        .members()
        .map(|package| (&package.name, &package.version))
        .collect();
    all.into_iter()
        .filter(|package| !ours.contains(&(&package.name, &package.version)))
        .collect()
}

/// The licences of these crates, or which of them have none that is allowed.
fn expressions(packages: &[&Package]) -> Result<Vec<Expression>, Failure> {
    let mut refused = Vec::new();
    let mut found = Vec::new();
    for package in packages {
        let told = package.license.as_deref().unwrap_or("none");
        match Expression::parse_mode(told, ParseMode::LAX) {
            Ok(expression) if expression.evaluate(allowed) => found.push(expression),
            _ => refused.push(format!("\n  {} {}: {told}", package.name, package.version)),
        }
    }
    if refused.is_empty() {
        return Ok(found);
    }
    let list = refused.concat();
    Err(Failure::Found(format!(
        "crates whose licences are not among {}:{list}",
        ALLOWED.join(", ")
    )))
}

fn allowed(licence: &LicenseReq) -> bool {
    licence.license.id().is_some_and(|id| ALLOWED.contains(&id.name))
}

/// The licences' texts as the crate brings them; where it brings none, those of its licences that are allowed.
fn texts_of(package: &Package, expression: &Expression) -> Result<Vec<String>, Failure> {
    let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
    let files = license_files(folder)?;
    if files.is_empty() {
        let allowed = expression.requirements().filter(|one| allowed(&one.req));
        let ids = allowed.filter_map(|one| one.req.license.id());
        return Ok(ids.map(|id| id.text().trim().to_owned()).collect());
    }
    files.iter().map(|path| Ok(read(path)?.trim().to_owned())).collect()
}

/// Files with licences in a crate's folder and, for sources that it carries along, in the folders in that.
fn license_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        let inner = if path.is_dir() { entries(&path)? } else { vec![path] };
        found.extend(inner.into_iter().filter(|path| path.is_file() && is_license(path)));
    }
    found.sort();
    Ok(found)
}

fn is_license(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_uppercase())
        .unwrap_or_default();
    FILES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let listed = std::fs::read_dir(folder).map_err(Failure::file(folder))?;
    listed
        .map(|entry| Ok(entry.map_err(Failure::file(folder))?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_needs_one_allowed_licence_and_a_sum_all() {
        let passes = |text| Expression::parse_mode(text, ParseMode::LAX).is_ok_and(|found| found.evaluate(allowed));
        for text in [
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "Apache-2.0 WITH LLVM-exception",
            "ISC AND (MIT OR GPL-2.0-only)",
        ] {
            assert!(passes(text), "{text}");
        }
        for text in ["GPL-3.0-only", "MIT AND LGPL-2.1-or-later", "MPL-2.0", "Proprietary"] {
            assert!(!passes(text), "{text}");
        }
    }
}
