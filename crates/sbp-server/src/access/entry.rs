//! The file of names: who is known, by what, and what each may do.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::grant::Grant;
use super::moment::Moment;
use super::quota::Quota;
use super::secret::TokenDigest;

/// Bytes of a name at most.
const LONGEST_NAME: usize = 255;

/// One line of the file: a name, what shows that a peer has it, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name, for grants, quotas, logs and the audit. Several lines may have the same, each with a token of its own.
    pub name: String,
    /// What it may do.
    pub allow: Vec<Grant>,
    /// What is kept of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<TokenDigest>,
    /// The first name in its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The subject (`sub`) of its OAuth tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When the token was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Moment>,
    /// Until when the line counts; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    /// How much the name may do.
    #[serde(default, skip_serializing_if = "Quota::is_unlimited")]
    pub quota: Quota,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Which, from 1 on.
    pub line: usize,
    /// What is wrong with it. Never repeats a token.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl Entry {
    /// Whether a server could read the line.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        self.fault().map_or(Ok(()), |fault| Err(fault.to_owned()))
    }

    fn fault(&self) -> Option<&'static str> {
        let shown_by = [
            self.sha256.is_some(),
            self.certificate.is_some(),
            self.subject.is_some(),
        ];
        let is_name =
            |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
        let names = [Some(&self.name), self.certificate.as_ref(), self.subject.as_ref()];
        if !names.into_iter().flatten().all(|name| is_name(name)) {
            Some("a name has 1 to 255 bytes and no control characters")
        } else if let Err(fault) = self.quota.check() {
            Some(fault)
        } else if shown_by.into_iter().filter(|given| *given).count() == 1 {
            None
        } else {
            Some("exactly one of sha256, certificate and subject says by what the name is known")
        }
    }
}

/// Reads the file: a JSON object on each line. Empty lines, and those that begin with `#`, say nothing.
///
/// # Errors
///
/// The first line that cannot be used.
pub fn read_entries(text: &[u8]) -> Result<Vec<Entry>, BadLine> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut shown = HashSet::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let bad = |reason: String| BadLine {
            line: index + 1,
            reason,
        };
        let entry: Entry = serde_json::from_slice(line).map_err(|error| bad(reason(&error)))?;
        if let Some(fault) = entry.fault() {
            return Err(bad(fault.to_owned()));
        }
        // The one that counts would be the last, and taking it away would bring the other's rights back.
        if let Some(by) = entry
            .certificate
            .as_ref()
            .map(|name| (true, name.clone()))
            .or_else(|| entry.subject.as_ref().map(|name| (false, name.clone())))
            && !shown.insert(by)
        {
            let twice = "another line is for the same certificate or subject: make one line of the two";
            return Err(bad(twice.to_owned()));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// What is wrong with a line, without its number, which is always 1. An error about a value's type would repeat the
/// value, which may be a token in the wrong place.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    if text.starts_with("invalid type") || text.starts_with("invalid value") {
        format!("a value before column {} has the wrong type", error.column())
    } else {
        // The name of a field that nobody knows may be anything, and this is told on terminals and in logs.
        let text = text.replace(char::is_control, "\u{fffd}");
        format!("{text} (column {})", error.column())
    }
}

/// A line of the file.
#[must_use]
pub fn write_entry(entry: &Entry) -> String {
    // Nothing in an entry can fail to be written: its maps have text for keys.
    serde_json::to_string(entry).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::secret::new_token;

    fn entry() -> Entry {
        Entry {
            name: "billing".to_owned(),
            allow: vec!["read:orders/*".parse().expect("a grant")],
            sha256: Some(TokenDigest::of(&new_token().expect("random"))),
            certificate: None,
            subject: None,
            created: Some(Moment::from_secs(1_700_000_000)),
            expires: None,
            quota: Quota::default(),
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let one = entry();
        let other = Entry {
            sha256: None,
            certificate: Some("spark.example".to_owned()),
            created: None,
            quota: Quota {
                calls: Some(7),
                ..Quota::default()
            },
            ..entry()
        };
        let text = format!(
            "# who is known\n\n{}\n  {}  \r\n",
            write_entry(&one),
            write_entry(&other)
        );
        assert_eq!(read_entries(text.as_bytes()), Ok(vec![one, other]));
        assert_eq!(read_entries(b""), Ok(vec![]));
    }

    #[test]
    fn one_line_says_what_a_subject_may() {
        let line = |name: &str, by: &str| format!(r#"{{"name":"{name}","allow":[],"{by}":"x"}}"#);
        let text = [line("a", "subject"), line("b", "certificate"), line("c", "subject")].join("\n");
        let error = read_entries(text.as_bytes()).expect_err("two for a subject");
        assert_eq!(error.line, 3);
        assert!(error.reason.contains("the same certificate or subject"), "{error}");
        let two = [line("a", "subject"), line("b", "certificate")].join("\n");
        assert_eq!(read_entries(two.as_bytes()).map(|entries| entries.len()), Ok(2));
    }

    #[test]
    fn what_cannot_be_used_is_told_with_its_line_and_without_a_token() {
        let digest = "00".repeat(32);
        let cases = [
            ("{", "EOF"),
            ("7", "wrong type"),
            (r#"{"name":"a","allow":[]}"#, "exactly one of"),
            (
                &format!(r#"{{"name":"a","allow":[],"sha256":"{digest}","subject":"b"}}"#),
                "exactly one of",
            ),
            (r#"{"name":"a","allow":["secret:x"],"subject":"b"}"#, "is no grant"),
            (
                r#"{"name":"a","allow":[],"sha256":"sbp_secret"}"#,
                "64 hexadecimal digits",
            ),
            (r#"{"name":"a","allow":"sbp_secret","subject":"b"}"#, "wrong type"),
            (
                r#"{"name":"a","allow":[],"token":"sbp_secret"}"#,
                "unknown field `token`",
            ),
            (r#"{"name":"","allow":[],"subject":"b"}"#, "1 to 255 bytes"),
            (
                "{\"name\":\"a\\u0007\",\"allow\":[],\"subject\":\"b\"}",
                "control characters",
            ),
            (
                r#"{"name":"a","allow":[],"subject":"b","expires":"soon"}"#,
                "a time is written as",
            ),
            ("\u{fffd}", "expected value"),
            (
                r#"{"name":"a","allow":[],"subject":"b","quota":{"bytes_in_per_second":0}}"#,
                "lets nothing be done at all",
            ),
        ];
        for (line, expected) in cases {
            let error = read_entries(format!("\n{line}\n").as_bytes()).expect_err(line);
            assert_eq!(error.line, 2, "{line}");
            assert!(error.reason.contains(expected), "{line}: {error}");
            assert!(!error.reason.contains("sbp_secret"), "{error}");
        }
    }
}
