//! `cargo xtask duplicates`: crates that are compiled in more than one version.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::workspace::{Failure, root, run};

/// A crate that is there in several versions, and why.
struct Known {
    /// Its name.
    name: &'static str,
    /// Its versions, as far as they tell whether one can stand for another.
    versions: &'static [&'static str],
    /// Who asks for which, and so what has to change before one of them goes.
    reason: &'static str,
}

/// What is there today. A new one costs time of everybody who builds this, room in the wheel, and a second look at each advisory: ask
/// for another version or feature, or say here why not.
const KNOWN: [Known; 10] = [
    Known {
        name: "base64",
        versions: &["0.22", "0.23"],
        reason: "jsonwebtoken asks for 0.22, arrow-cast and pem for 0.23",
    },
    Known {
        name: "crypto-common",
        versions: &["0.1", "0.2"],
        reason: "as digest",
    },
    Known {
        name: "digest",
        versions: &["0.10", "0.11"],
        reason: "traits alone: crc-fast asks for 0.10, sha2 for 0.11",
    },
    Known {
        name: "getrandom",
        versions: &["0.3", "0.4"],
        reason: "ahash, under arrow-array, asks for 0.3, we and tempfile for 0.4",
    },
    Known {
        name: "hashbrown",
        versions: &["0.14", "0.17"],
        reason: "dashmap, under stateright, asks for 0.14 in tests alone, others for 0.17",
    },
    Known {
        name: "num-bigint",
        versions: &["0.4", "0.5"],
        reason: "der-parser, under x509-parser, asks for 0.4, arrow-buffer for 0.5",
    },
    Known {
        name: "rand",
        versions: &["0.10", "0.9"],
        reason: "in tests alone: stateright asks for 0.9, proptest for 0.10",
    },
    Known {
        name: "rand_core",
        versions: &["0.10", "0.9"],
        reason: "in tests alone: as rand",
    },
    Known {
        name: "syn",
        versions: &["2", "3"],
        reason: "in macros, not in what is shipped: serde_derive, clap_derive, pyo3 and tokio ask for 3, others for 2",
    },
    Known {
        name: "untrusted",
        versions: &["0.7", "0.9"],
        reason: "aws-lc-rs asks for 0.7, rustls-webpki for 0.9",
    },
];

/// Fails when a crate is there in versions that are not listed here, or not any more in those that are.
pub(crate) fn check() -> Result<(), Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = "tree --workspace --duplicates --edges normal,build,dev --prefix none --depth 0 --locked --format {p}";
    let found = versions(&run(Command::new(cargo).args(words.split(' ')).current_dir(root()))?);
    let wrong = differences(&found, &KNOWN);
    if !wrong.is_empty() {
        return Err(Failure::Found(format!(
            "crates in more than one version are not those that crates/xtask/src/duplicates.rs lists:{}",
            wrong.concat()
        )));
    }
    println!("duplicates: {} crates are there in more than one version:", found.len());
    for known in &KNOWN {
        println!("  {} {}: {}", known.name, known.versions.join(" and "), known.reason);
    }
    Ok(())
}

/// The crates in a list of `name vVERSION` that have several versions. One that is built twice, for this machine and as a part of
/// macros, stands in such a list as well.
fn versions(listed: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next().and_then(|word| word.strip_prefix('v'))) {
            all.entry(name.to_owned()).or_default().insert(compatible(version));
        }
    }
    all.retain(|_, versions| versions.len() > 1);
    all
}

/// Of a version what has to be the same for one to stand for another: `1` of 1.2.3, `0.2` of 0.2.3, `0.0.3` of 0.0.3.
fn compatible(version: &str) -> String {
    let parts: Vec<_> = version.split(['.', '+', '-']).take(3).collect();
    let significant = parts
        .iter()
        .position(|part| *part != "0")
        .map_or(parts.len(), |zeros| zeros + 1);
    parts.into_iter().take(significant).collect::<Vec<_>>().join(".")
}

/// What is there and not listed, and what is listed and not there, each as a line of text.
fn differences(found: &BTreeMap<String, BTreeSet<String>>, known: &[Known]) -> Vec<String> {
    let listed = |name: &str| known.iter().find(|known| known.name == name);
    let told = |versions: &BTreeSet<String>| versions.iter().cloned().collect::<Vec<_>>().join(" and ");
    let mut wrong = Vec::new();
    for (name, versions) in found {
        let same =
            listed(name).is_some_and(|known| known.versions.iter().copied().eq(versions.iter().map(String::as_str)));
        if !same {
            wrong.push(format!(
                "\n  {name} is there in versions {}: `cargo tree --invert {name}@VERSION` says who asks; do without one, or list it",
                told(versions)
            ));
        }
    }
    for known in known.iter().filter(|known| !found.contains_key(known.name)) {
        wrong.push(format!(
            "\n  {} is not there in several versions any more: take it out of the list",
            known.name
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: [Known; 1] = [Known {
        name: "base64",
        versions: &["0.22", "0.23"],
        reason: "",
    }];

    fn wrong(listed: &str) -> Vec<String> {
        differences(&versions(listed), &LIST)
    }

    #[test]
    fn only_what_is_listed_may_be_there_and_has_to_be() {
        let known = "base64 v0.22.1\n\nbase64 v0.23.1\n\nquote v1.0.47\n\nquote v1.0.47 (proc-macro)\n";
        assert_eq!(wrong(known), [""; 0]);
        assert_eq!(
            wrong(&known.replace("0.23.1", "0.23.7")),
            [""; 0],
            "a repair changes nothing"
        );
        let third = wrong(&format!("{known}base64 v0.24.0\n"));
        assert!(
            matches!(&third[..], [line] if line.contains("0.22 and 0.23 and 0.24")),
            "{third:?}"
        );
        let other = wrong(&format!("{known}syn v2.0.1\nsyn v3.0.1\n"));
        assert!(
            matches!(&other[..], [line] if line.contains("syn") && line.contains("2 and 3")),
            "{other:?}"
        );
        let gone = wrong("base64 v0.23.1\n");
        assert!(matches!(&gone[..], [line] if line.contains("any more")), "{gone:?}");
    }

    #[test]
    fn versions_are_compared_by_what_makes_them_compatible() {
        for (version, wanted) in [
            ("1.2.3", "1"),
            ("0.2.3", "0.2"),
            ("0.0.3", "0.0.3"),
            ("0.9.12+spec-1.1.0", "0.9"),
        ] {
            assert_eq!(compatible(version), wanted);
        }
    }
}
