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
    /// The etcd of servers that are placement drivers too is killed, and started again.
    KillEtcd,
    /// That etcd is paused.
    PauseEtcd,
    /// The open range of a stream is sealed.
    Seal,
    /// What was read of a stream is trimmed.
    Trim,
}

/// Faults of each cluster.
const OF_ALL: [Fault; 8] = [
    Fault::KillServer,
    Fault::PauseServer,
    Fault::CutOff,
    Fault::Deaf,
    Fault::Mute,
    Fault::LoseDisk,
    Fault::Seal,
    Fault::Trim,
];

/// Who places ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A placement driver in a process of its own.
    OneDriver,
    /// Every server, one of which leads; what they know is in an etcd.
    EqualServers,
}

impl Kind {
    /// What can happen to such a cluster.
    pub(crate) fn faults(self) -> Vec<Fault> {
        let of_it = match self {
            Self::OneDriver => [Fault::KillDriver, Fault::PauseDriver],
            Self::EqualServers => [Fault::KillEtcd, Fault::PauseEtcd],
        };
        [&OF_ALL[..], &of_it].concat()
    }
}
