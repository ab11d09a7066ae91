//! The protocol's page says what the code does.

use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, MAX_ENTRIES, Retry, features};

const PAGE: &str = include_str!("../../../schemas/README.md");
const SCHEMA: &str = include_str!("../../../schemas/sbp.fbs");

/// Fails with all lines that the page lacks.
fn expect_lines(wanted: impl IntoIterator<Item = String>) {
    let missing: Vec<_> = wanted
        .into_iter()
        .filter(|line| !PAGE.lines().any(|found| found == line))
        .collect();
    assert!(missing.is_empty(), "schemas/README.md lacks\n{}", missing.join("\n"));
}

#[test]
fn every_error_code_has_its_row() {
    expect_lines(ErrorCode::ALL.iter().map(|code| {
        let rule = code.rule();
        let retry = match rule.retry {
            Retry::Never => "no",
            Retry::Now => "now",
            Retry::Later => "later",
            Retry::Elsewhere => "elsewhere",
            Retry::Refresh => "refresh",
        };
        let done = if rule.may_have_been_done { "maybe" } else { "no" };
        let class = if code.is_success() {
            String::new()
        } else {
            format!("`{}`", rule.python_class)
        };
        format!(
            "| {} | {} | {retry} | {done} | {class} | {} |",
            code.0, rule.name, rule.advice
        )
    }));
}

#[test]
fn every_operation_has_its_row() {
    for opcode in OpCode::ALL {
        let start = format!("| 0x{:04x} | {} |", opcode.0, opcode.name().expect("of the table"));
        assert!(
            PAGE.lines().any(|line| line.starts_with(&start)),
            "schemas/README.md lacks {start}"
        );
    }
}

#[test]
fn every_feature_is_named() {
    let names = [
        features::NAMES,
        features::CONDITIONAL_APPEND,
        features::IDEMPOTENCE,
        features::BOUNDED_FETCH,
        features::DURABILITY,
        features::SERVER_ID,
        features::MAX_CALLS,
        features::MAX_BYTES,
        features::MAX_WAITS,
        features::MAX_ENTRIES,
        features::MAX_HEADER,
    ];
    for name in names {
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "schemas/README.md lacks the feature {name}"
        );
    }
}

#[test]
fn the_limit_on_entries_is_told() {
    assert_eq!(MAX_ENTRIES, 1_024);
    assert!(PAGE.contains("numbers and names together | 1,024 |"));
}

#[test]
fn every_field_is_listed_with_its_id() {
    let mut table = "";
    let mut fields = 0;
    for line in SCHEMA.lines() {
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.split(' ').next().unwrap_or_default();
        }
        let Some((field, rest)) = line.strip_prefix("  ").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let Some((_, id)) = rest.split_once("(id: ") else {
            continue;
        };
        let id = id.split(')').next().unwrap_or_default();
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| `{table}` |")))
            .unwrap_or_default();
        assert!(
            row.contains(&format!(" {id} `{field}` ")),
            "schemas/README.md lacks {table}.{field} with id {id}"
        );
        fields += 1;
    }
    assert!(fields > 200, "{fields} fields were found in the schema");
}
