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
