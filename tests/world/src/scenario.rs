//! How large a world is, and what may happen in it.

use sbp_replication::{Rule, Rules};

/// How often each kind of thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Batches that are sent again.
    pub resends: u8,
    /// Writers that are opened again, which fences the older instance.
    pub fences: u8,
    /// Seals that a placement driver begins.
    pub seals: u8,
    /// Servers that stop as if killed.
    pub crashes: u8,
    /// Logs that drop what is queued.
    pub drops: u8,
    /// Servers that lose their disk.
    pub wipes: u8,
    /// Placement drivers that become the leader.
    pub leads: u8,
    /// Connections that break.
    pub breaks: u8,
    /// Answers of the store that get lost.
    pub lost_answers: u8,
    /// Readers who ask where the stream ends.
    pub questions: u8,
    /// Sealed ranges that are copied to a server that lacks something of them.
    pub copies: u8,
    /// Times that the store is put back to its beginning.
    pub restores: u8,
    /// Entries on a disk that cannot be read any more.
    pub damages: u8,
    /// Seals that are ended by force, without what nobody who voted can read. Then as many disks may lose the same entry as there are,
    /// and none loses the end of a range.
    pub forces: u8,
    /// Trims of the stream.
    pub trims: u8,
    /// Copies of sealed ranges to servers that have none.
    pub moves: u8,
    /// Directions between two servers, or a server and a placement driver, that are cut until somebody mends them.
    pub cuts: u8,
    /// Servers that take the place of another in an open range, where that rule is broken.
    pub replacements: u8,
}

/// How large a world is.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name, for reports.
    pub name: &'static str,
    /// Servers.
    pub servers: usize,
    /// Servers of a new range.
    pub replicas: usize,
    /// How many replicas the stream asks for after its first range was opened.
    pub later_replicas: usize,
    /// How many of them acknowledge.
    pub acks: usize,
    /// Whether every second range is on one server alone, which goes on with the writers as it knows them.
    pub alternates: bool,
    /// In how many parts the state of the writers is stored.
    pub parts: u32,
    /// So many entries of a range wait to be confirmed at most.
    pub most_unconfirmed: usize,
    /// Placement drivers.
    pub drivers: usize,
    /// Writers.
    pub writers: u8,
    /// Batches of each writer.
    pub batches: u8,
    /// Whether entries are on their way for a while; else they arrive as they are sent.
    pub in_flight: bool,
    /// Whether it takes long until what is known of ranges is durable.
    pub slow_commits: bool,
    /// How often what may happen.
    pub budget: Budget,
    /// The rules in force.
    pub rules: Rules,
}

impl Scenario {
    /// The same, with one rule broken.
    #[must_use]
    pub fn without(mut self, rule: Rule) -> Self {
        self.rules = Rules::without(rule);
        self
    }
}
