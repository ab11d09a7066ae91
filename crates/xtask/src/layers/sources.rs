//! What the Rust sources mention.

use std::path::{Path, PathBuf};

use super::Violation;
use super::rules::PURE;
use crate::graph::Graph;
use crate::source::{code_lines, has_word};
use crate::workspace::{Failure, files, read, shown};

/// Ways to read a clock.
const CLOCKS: [&str; 3] = ["Instant::now", "SystemTime", "elapsed"];

/// Where unsafe code may be: crates, whole.
const UNSAFE_CRATES: [&str; 2] = ["sbp-schema", "sbp-python"];

/// What of FlatBuffers could show in a signature.
const FLATBUFFERS: [&str; 4] = ["flatbuffers", "sbp_schema", "WIPOffset", "fb"];

/// Searches the sources of every crate.
pub(super) fn check(graph: &Graph) -> Result<Vec<Violation>, Failure> {
    let mut violations = Vec::new();
    for package in graph.members() {
        let directory = package.manifest_path.parent().unwrap_or(Path::new("")).to_path_buf();
        let name = package.name.as_str();
        if !read(&package.manifest_path)?.contains("[lints]\nworkspace = true") {
            let what = format!("{name} does not take over the workspace's lints, which deny unsafe code");
            violations.push(Violation { rule: "L9", what });
        }
        for path in library_files(&directory)? {
            let text = read(&path)?;
            for (line, code) in code_lines(&text) {
                for (rule, what) in judge(name, &code) {
                    violations.push(Violation {
                        rule,
                        what: format!("{}:{line}: {what}", shown(&path)),
                    });
                }
            }
        }
    }
    Ok(violations)
}

/// The files that a crate's users get: no tests, nothing generated.
pub(super) fn library_files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let source = directory.join("src");
    let mut paths = files(&source, "rs")?;
    let mut tests = Vec::new();
    for path in &paths {
        let here = path.parent().unwrap_or(&source);
        let inside = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("lib" | "main" | "mod") | None => here.to_path_buf(),
            Some(stem) => here.join(stem),
        };
        tests.extend(test_modules(&read(path)?).map(|name| inside.join(name)));
    }
    paths.retain(|path| {
        !tests
            .iter()
            .any(|test| path.with_extension("") == *test || path.starts_with(test))
    });
    paths.retain(|path| {
        let inside = path.strip_prefix(&source).unwrap_or(path);
        let parts: Vec<_> = inside.iter().filter_map(|part| part.to_str()).collect();
        !parts
            .iter()
            .any(|part| matches!(*part, "tests" | "tests.rs" | "generated"))
    });
    Ok(paths)
}

/// The modules that a file has for its tests alone, in files of their own.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    let pairs = text.lines().zip(text.lines().skip(1));
    pairs.filter_map(|(attribute, line)| {
        let name = line.trim().strip_prefix("mod ")?.strip_suffix(';')?;
        (attribute.trim() == "#[cfg(test)]").then_some(name)
    })
}

/// The rules that one line of code breaks.
fn judge(name: &str, code: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if PURE.contains(&name) {
        let clock = CLOCKS.iter().find(|clock| has_word(code, clock));
        found.extend(clock.map(|clock| ("L1", format!("reads a clock: {clock}"))));
    }
    if matches!(name, "sbp-messages" | "sbp-record") && code.trim_start().starts_with("pub ") {
        let shows = FLATBUFFERS.iter().any(|word| has_word(code, word));
        found.extend(shows.then(|| ("L2", format!("shows FlatBuffers: {}", code.trim()))));
    }
    if has_word(code, "unsafe") && !UNSAFE_CRATES.contains(&name) {
        found.push(("L9", format!("unsafe code: {}", code.trim())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{judge, test_modules};

    fn rules(name: &str, code: &str) -> Vec<&'static str> {
        judge(name, code).into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn modules_for_tests_are_known() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod c {\n}\n#[cfg(feature = \"x\")]\nmod d;\n";
        assert_eq!(test_modules(text).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn clocks_are_found_where_they_are_forbidden() {
        assert_eq!(rules("sbp-session", "let now = Instant::now();"), ["L1"]);
        assert_eq!(rules("sbp-record", "std::time::SystemTime::now()"), ["L1"]);
        assert_eq!(rules("sbp-session", "use std::time::Instant;"), [""; 0]);
        assert_eq!(rules("sbp-transport", "Instant::now()"), [""; 0]);
    }

    #[test]
    fn flatbuffers_in_a_public_signature_is_found() {
        assert_eq!(rules("sbp-messages", "pub fn table(&self) -> fb::Stream<'_>;"), ["L2"]);
        assert_eq!(
            rules(
                "sbp-messages",
                "pub(crate) type Builder = flatbuffers::FlatBufferBuilder;"
            ),
            [""; 0]
        );
    }

    #[test]
    fn unsafe_is_found() {
        assert_eq!(rules("sbp-log", "    unsafe { call() }"), ["L9"]);
        assert_eq!(rules("sbp-python", "    unsafe { call() }"), [""; 0]);
    }
}
