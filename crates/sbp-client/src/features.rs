//! What the peer said of itself in HEARTBEAT.

use sbp_types::ClusterId;

/// What this client offers: names it understands, values chosen by the server.
pub(crate) const OFFERED: [&str; 15] = [
    "names",
    "conditional-append",
    "idempotence",
    "fence",
    "bounded-fetch",
    "withdraw",
    "identity",
    "durability",
    "server-id",
    "cluster",
    "max-calls",
    "max-bytes",
    "max-waits",
    "max-entries",
    "max-header",
];

/// How much an acknowledgement is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The server did not say.
    #[default]
    Unknown,
    /// Acknowledged after fdatasync: it survives loss of power.
    Fsync,
    /// Acknowledged before it was synced: it survives the server's process, not a loss of power.
    None,
}

impl Durability {
    /// The word the wire and the command line use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fsync => "fsync",
            Self::None => "none",
        }
    }
}

/// What was agreed with one peer. Until its first HEARTBEAT answer: a plain peer with the protocol's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Streams have names.
    pub names: bool,
    /// `expected_offset` of an append is honoured.
    pub conditional_append: bool,
    /// Sequences of writers are honoured; the number of batches that the server remembers of each.
    pub idempotence: Option<usize>,
    /// A writer that is opened again by name can shut out those opened before.
    pub fence: bool,
    /// FETCH knows end offsets, start times, a bound over all answers, and positions without data.
    pub bounded_fetch: bool,
    /// A FETCH that waits can be ended before its time is over.
    pub withdraw: bool,
    /// What an acknowledgement is worth.
    pub durability: Durability,
    /// The server's number, if it told it.
    pub server_id: Option<i32>,
    /// The id of the cluster that the server belongs to, if it told it.
    pub cluster: Option<ClusterId>,
    /// Calls it takes at once.
    pub max_calls: usize,
    /// Bytes of requests it takes at once.
    pub max_bytes: usize,
    /// FETCHes that may wait at once.
    pub max_waits: usize,
    /// Entries of one request.
    pub max_entries: usize,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            names: false,
            conditional_append: false,
            idempotence: None,
            fence: false,
            bounded_fetch: false,
            withdraw: false,
            durability: Durability::Unknown,
            server_id: None,
            cluster: None,
            max_calls: 1_024,
            max_bytes: 64 << 20,
            max_waits: 256,
            max_entries: 1_024,
        }
    }
}

impl Features {
    /// Takes what an answer lists. Names that are not known, and values that cannot be read, change nothing.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut agreed = Self::default();
        for (name, value) in pairs {
            match name {
                "names" => agreed.names = true,
                "conditional-append" => agreed.conditional_append = true,
                // A plain "1" would leave a writer no room; then it is sent one at a time.
                "idempotence" => agreed.idempotence = value.parse().ok().filter(|&window| window > 0),
                "fence" => agreed.fence = true,
                "bounded-fetch" => agreed.bounded_fetch = true,
                "withdraw" => agreed.withdraw = true,
                "durability" => {
                    agreed.durability = match value {
                        "fsync" => Durability::Fsync,
                        "none" => Durability::None,
                        _ => Durability::Unknown,
                    }
                }
                "cluster" => agreed.cluster = value.parse().ok(),
                "server-id" => agreed.server_id = value.parse().ok(),
                "max-calls" => set_limit(&mut agreed.max_calls, value),
                "max-bytes" => set_limit(&mut agreed.max_bytes, value),
                "max-waits" => set_limit(&mut agreed.max_waits, value),
                "max-entries" => set_limit(&mut agreed.max_entries, value),
                _ => {}
            }
        }
        agreed
    }
}

/// A limit of zero would stop everything for ever, so it is not believed.
fn set_limit(limit: &mut usize, value: &str) {
    if let Ok(told @ 1..) = value.parse::<usize>() {
        *limit = told;
    }
}

#[cfg(test)]
mod tests {
    use super::{Durability, Features};

    #[test]
    fn known_names_are_taken_and_others_ignored() {
        let agreed = Features::from_pairs([
            ("bounded-fetch", "1"),
            ("durability", "none"),
            ("server-id", "7"),
            ("cluster", "000102030405060708090a0b0c0d0e0f"),
            ("max-calls", "12"),
            ("max-waits", "0"),
            ("max-entries", "many"),
            ("from-the-future", "1"),
        ]);
        assert!(agreed.bounded_fetch && !agreed.names);
        assert_eq!(agreed.durability, Durability::None);
        assert_eq!(agreed.server_id, Some(7));
        let cluster = agreed.cluster.map(|cluster| cluster.to_string());
        assert_eq!(cluster.as_deref(), Some("000102030405060708090a0b0c0d0e0f"));
        assert_eq!(
            (agreed.max_calls, agreed.max_waits, agreed.max_entries),
            (12, 256, 1_024)
        );
    }
}
