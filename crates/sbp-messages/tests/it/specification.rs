//! The pages that go through the specifications: nothing is left out, and the tests that they name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sbp_frame::OpCode;

/// A page: where it is under docs/, its text, and how many sentences the specification has in each section; in SBP's also in each
/// part of section 3, the operations in the order of its table.
struct Page {
    path: &'static str,
    text: &'static str,
    sections: &'static [usize],
    operations: &'static [usize],
}

impl Page {
    /// How many sentences each section has.
    fn sections(&self) -> impl Iterator<Item = (String, usize)> {
        let numbered = |counts: &'static [usize], before: &'static str| {
            (1..)
                .zip(counts)
                .map(move |(number, count)| (format!("{before}{number}"), *count))
        };
        numbered(self.sections, "").chain(numbered(self.operations, "3."))
    }
}

macro_rules! page {
    ($path:literal, $sections:expr, $operations:expr) => {
        Page {
            path: $path,
            text: include_str!(concat!("../../../../docs/", $path)),
            sections: &$sections,
            operations: &$operations,
        }
    };
}

/// What was counted in the texts.
const PAGES: [Page; 4] = [
    page!(
        "specification.md",
        [12, 31, 22, 11, 1],
        [3, 3, 17, 7, 26, 29, 34, 21, 11, 20, 24, 10, 7, 6, 26, 24, 14]
    ),
    page!("tank/specification.md", [12, 27, 22, 14, 11, 5, 4], []),
    page!("seastar/specification.md", [16, 22, 24, 9, 8], []),
    page!("pravega/specification.md", [9, 22, 17, 15, 9, 12], []),
];

/// A row of a page: its section, its number in it, what it says, what shows it.
struct Row {
    section: String,
    number: usize,
    says: &'static str,
    shown_by: &'static str,
}

fn rows(page: &Page) -> Vec<Row> {
    let cells = page.text.lines().filter_map(|line| {
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
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let (mut missing, mut texts) = (Vec::new(), BTreeMap::new());
    for page in &PAGES {
        let folder = docs.join(page.path).parent().expect("a folder").to_owned();
        for row in rows(page) {
            let place = format!("{} {}.{} ({})", page.path, row.section, row.number, row.says);
            let named = tests(row.shown_by);
            if named.is_empty() && !row.shown_by.starts_with("nothing to show: ") {
                missing.push(format!("{place} names neither a test nor a reason"));
            }
            for (name, path) in named {
                let path = folder.join(path);
                let text = texts
                    .entry(path.clone())
                    .or_insert_with(|| std::fs::read_to_string(&path).unwrap_or_default());
                if !has_test(text, &path, name) {
                    missing.push(format!("{place}: {name} is not in {}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "of the pages in docs/:\n{}", missing.join("\n"));
}

#[test]
fn no_sentence_is_left_out() {
    for page in &PAGES {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let (mut nothing, mut named) = (0, BTreeSet::new());
        let rows = rows(page);
        for row in &rows {
            let count = counts.entry(row.section.clone()).or_default();
            *count += 1;
            assert_eq!(row.number, *count, "{}: a hole in section {}", page.path, row.section);
            nothing += usize::from(row.shown_by.starts_with("nothing to show: "));
            named.extend(tests(row.shown_by));
        }
        for (section, sentences) in page.sections() {
            assert_eq!(
                counts.remove(&section),
                Some(sentences),
                "{}: section {section}",
                page.path
            );
        }
        assert!(counts.is_empty(), "{}: {counts:?}", page.path);
        let told = format!(
            "**{} sentences; {} of them have nothing to show; {} tests show the others.**",
            rows.len(),
            nothing,
            named.len()
        );
        assert!(page.text.contains(&told), "docs/{} lacks {told:?}", page.path);
    }
}

#[test]
fn every_operation_has_its_section() {
    for opcode in OpCode::ALL {
        let name = opcode.name().expect("of the table");
        let title = format!(" · {name}");
        let found = PAGES[0]
            .text
            .lines()
            .any(|line| line.starts_with("## 3.") && line.ends_with(&title));
        // The text has no section about it.
        assert_eq!(found, *opcode != OpCode::CREATE_RANGE, "{name}");
    }
}
