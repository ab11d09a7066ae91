//! What becomes of servers.

/// Something that happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process of a range server is killed, and started again.
    KillServer,
    /// It is paused for longer than the others are patient.
    PauseServer,
    /// Nothing gets through the connections that others made to it, and they stand: as where a network drops everything for a
    /// while, it arrives afterwards.
    CutOff,
    /// What it is sent over connections that others made waits on its way; what it answers arrives.
    Deaf,
    /// What it is sent arrives, and its answers wait on their way.
    Mute,
    /// Its process is killed and its directory is deleted; it starts empty.
    LoseDisk,
    /// The placement driver is killed, and started again.
    KillDriver,
    /// The placement driver is paused.
    PauseDriver,
    /// The open range of a stream is sealed.
    Seal,
    /// What was read of a stream is trimmed.
    Trim,
}

impl Fault {
    pub(crate) const ALL: [Self; 10] = [
        Self::KillServer,
        Self::PauseServer,
        Self::CutOff,
        Self::Deaf,
        Self::Mute,
        Self::LoseDisk,
        Self::KillDriver,
        Self::PauseDriver,
        Self::Seal,
        Self::Trim,
    ];
}
