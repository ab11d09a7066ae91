//! The page that goes through the specification: nothing is left out, and the tests that it names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sbp_frame::OpCode;

const PAGE: &str = include_str!("../../../../docs/specification.md");

/// A row of the page: its section, its number in it, what it says, what shows it.
struct Row {
    section: String,
    number: usize,
    says: &'static str,
    shown_by: &'static str,
}

fn rows() -> Vec<Row> {
    let cells = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        match cells.as_slice() {
            [place, says, shown_by] if place.starts_with(|first: char| first.is_ascii_digit()) => {
                Some((*place, *says, *shown_by))
            }
            _ => None,
        }
    });
    cells
        .map(|(place, says, shown_by)| {
            let (section, number) = place.rsplit_once('.').expect("a place in a section");
            Row {
                section: section.to_owned(),
                number: number.parse().expect("a number"),
                says,
                shown_by,
            }
        })
        .collect()
}

/// The tests that a cell names: name and path.
fn tests(cell: &'static str) -> Vec<(&'static str, &'static str)> {
    let links = cell.match_indices("[`").filter_map(|(at, _)| {
        let (name, rest) = cell[at + 2..].split_once("`](")?;
        Some((name, rest.split(')').next()?))
    });
    links.collect()
}

/// Whether the text has a test of that name: a Rust function under a test attribute, or one that pytest collects.
fn has_test(text: &str, path: &Path, name: &str) -> bool {
    let rust = path.extension().is_some_and(|extension| extension == "rs");
    if !rust {
        return name.starts_with("test_") && text.contains(&format!("def {name}("));
    }
    let Some(at) = text.find(&format!("fn {name}(")) else {
        return false;
    };
    let before: Vec<&str> = text[..at].rsplit('\n').skip(1).take(4).collect();
    before
        .iter()
        .take_while(|line| !line.trim().is_empty() && line.trim() != "}")
        .any(|line| line.trim_start().starts_with("#[test]") || line.trim_start().starts_with("#[tokio::test"))
}

#[test]
fn every_sentence_has_a_test_that_exists_or_a_reason_why_there_is_nothing_to_test() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let (mut missing, mut texts) = (Vec::new(), BTreeMap::new());
    for row in rows() {
        let place = format!("{}.{} ({})", row.section, row.number, row.says);
        let named = tests(row.shown_by);
        if named.is_empty() && !row.shown_by.starts_with("nothing to show: ") {
            missing.push(format!("{place} names neither a test nor a reason"));
        }
        for (name, path) in named {
            let path = Path::new(docs).join(path);
            let text = texts
                .entry(path.clone())
                .or_insert_with(|| std::fs::read_to_string(&path).unwrap_or_default());
            if !has_test(text, &path, name) {
                missing.push(format!("{place}: {name} is not in {}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "docs/specification.md:\n{}", missing.join("\n"));
}

#[test]
fn no_sentence_is_left_out() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut nothing, mut named) = (0, BTreeSet::new());
    let rows = rows();
    for row in &rows {
        let count = counts.entry(row.section.clone()).or_default();
        *count += 1;
        assert_eq!(row.number, *count, "a hole in section {}", row.section);
        nothing += usize::from(row.shown_by.starts_with("nothing to show: "));
        named.extend(tests(row.shown_by));
    }
    // What was counted in the text, section by section; the operations in the order of its table.
    let sections = [("1", 12), ("2", 31), ("3", 22), ("4", 11), ("5", 1)];
    let operations = [3, 3, 17, 7, 26, 29, 34, 21, 11, 20, 24, 10, 7, 6, 26, 24, 14];
    for (section, sentences) in sections {
        assert_eq!(counts.remove(section), Some(sentences), "section {section}");
    }
    for (index, sentences) in operations.into_iter().enumerate() {
        let section = format!("3.{}", index + 1);
        assert_eq!(counts.remove(&section), Some(sentences), "section {section}");
    }
    assert!(counts.is_empty(), "{counts:?}");
    let told = format!(
        "**{} sentences; {} of them have nothing to show; {} tests show the others.**",
        rows.len(),
        nothing,
        named.len()
    );
    assert!(PAGE.contains(&told), "docs/specification.md lacks {told:?}");
}

#[test]
fn every_operation_has_its_section() {
    for opcode in OpCode::ALL {
        let name = opcode.name().expect("of the table");
        let title = format!(" · {name}");
        let found = PAGE
            .lines()
            .any(|line| line.starts_with("## 3.") && line.ends_with(&title));
        // The text has no section about it.
        assert_eq!(found, *opcode != OpCode::CREATE_RANGE, "{name}");
    }
}
