//! How a file of names differs from what it was.

use std::collections::BTreeMap;

use super::entry::Entry;

/// What became of a name. Its lines may have tokens of their own: which of them changed is not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameChange {
    pub(crate) name: String,
    pub(crate) what: &'static str,
}

const ADDED: &str = "NAME_ADDED";
const REMOVED: &str = "NAME_REMOVED";
const CHANGED: &str = "NAME_CHANGED";

/// The names whose lines are not what they were, in the order of the names.
pub(super) fn changes(before: &[Entry], after: &[Entry]) -> Vec<NameChange> {
    let (before, after) = (by_name(before), by_name(after));
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|&name| (name, REMOVED));
    let others = after.iter().filter_map(|(&name, lines)| match before.get(name) {
        None => Some((name, ADDED)),
        Some(known) => (known != lines).then_some((name, CHANGED)),
    });
    let mut all: Vec<_> = removed.chain(others).collect();
    all.sort_unstable();
    let change = |(name, what): (&str, _)| NameChange {
        name: name.to_owned(),
        what,
    };
    all.into_iter().map(change).collect()
}

fn by_name(entries: &[Entry]) -> BTreeMap<&str, Vec<&Entry>> {
    let mut names: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        names.entry(&entry.name).or_default().push(entry);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{ADDED, CHANGED, Entry, REMOVED, changes};

    fn entry(name: &str, certificate: &str) -> Entry {
        Entry {
            name: name.to_owned(),
            allow: Vec::new(),
            sha256: None,
            certificate: Some(certificate.to_owned()),
            subject: None,
            created: None,
            expires: None,
            quota: crate::access::Quota::default(),
        }
    }

    #[test]
    fn names_are_added_removed_and_changed() {
        let before = [
            entry("gone", "a"),
            entry("same", "b"),
            entry("two", "c"),
            entry("two", "d"),
        ];
        let after = [entry("new", "e"), entry("two", "d"), entry("same", "b")];
        let found: Vec<_> = changes(&before, &after)
            .into_iter()
            .map(|one| (one.name, one.what))
            .collect();
        let told = |name: &str, what| (name.to_owned(), what);
        assert_eq!(found, [told("gone", REMOVED), told("new", ADDED), told("two", CHANGED)]);
        assert_eq!(changes(&after, &after), []);
    }
}
