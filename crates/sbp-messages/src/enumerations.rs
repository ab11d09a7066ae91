//! Enumerations in fields. Unknown numbers are kept.

/// The role of a HEARTBEAT's sender. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientRole(pub i8);

impl ClientRole {
    /// The sender does not state its role.
    pub const UNSPECIFIED: Self = Self(0);
    /// A placement driver.
    pub const PLACEMENT_DRIVER: Self = Self(1);
    /// A range server.
    pub const RANGE_SERVER: Self = Self(2);
    /// A client that appends and fetches.
    pub const CLIENT: Self = Self(3);
}

/// On whose behalf a range is sealed. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SealKind(pub i8);

impl SealKind {
    /// Not stated: as [`SealKind::PLACEMENT_DRIVER`].
    pub const UNSPECIFIED: Self = Self(0);
    /// Seal here and answer with the sealed range.
    pub const RANGE_SERVER: Self = Self(1);
    /// Seal, publish the end, open the next range and answer with that one.
    pub const PLACEMENT_DRIVER: Self = Self(2);
}

/// What an entry of an APPEND between range servers is. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaEntry(pub i8);

impl ReplicaEntry {
    /// A batch of a client.
    pub const NONE: Self = Self(0);
    /// A batch, or a writer's fence, that the range's primary has taken.
    pub const BATCH: Self = Self(1);
    /// The state of all writers at the beginning of the range.
    pub const WRITERS: Self = Self(2);
    /// Nothing to store: only how far the range is confirmed.
    pub const CONFIRMED: Self = Self(3);
}

/// Whether a replica has everything up to the end of its range. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaState(pub i8);

impl ReplicaState {
    /// It has, or gets it as everything that is appended to an open range.
    pub const COMPLETE: Self = Self(0);
    /// It is being copied to.
    pub const COPYING: Self = Self(1);
}

/// What an administrator wants of a range server. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerState(pub i8);

impl ServerState {
    /// Not stated; as an order: nothing changes.
    pub const UNSPECIFIED: Self = Self(0);
    /// It takes new ranges.
    pub const IN_USE: Self = Self(1);
    /// It is to be emptied: it takes no new ranges, and those that it has move elsewhere.
    pub const DRAINING: Self = Self(2);
}
