//! When an append counts as synced.

/// When an append counts as synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync` has returned: the append survives a power cut.
    #[default]
    Fsync,
    /// After the operating system has the bytes: the append survives the end of the process, but not of the machine.
    /// For tests, caches and benchmarks. Barriers and a shutdown sync in any case.
    None,
}

impl Durability {
    /// The name users see and choose by: `fsync` or `none`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::None => "none",
        }
    }
}
