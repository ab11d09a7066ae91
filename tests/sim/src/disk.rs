//! The simulated disk: names, files, faults and power cuts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use sbp_log::Space;

use crate::node::Node;

/// The room of a disk without bounds.
const PLENTY: u64 = 1 << 40;

/// The kinds of operations, which are counted and can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creating or emptying a file.
    Create,
    /// Writing bytes, or changing a file's length.
    Write,
    /// Reserving space.
    Preallocate,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// Reading. Not counted, because it changes nothing on the disk, but it can fail.
    Read,
    /// Asking for the room of the disk. Not counted either.
    Space,
}

/// How much of what was not synced survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// All of it.
    Everything,
    /// Each sector, length and name is decided separately, by this seed.
    Random(u64),
}

/// A change of names that is not durable, because the directory was not synced.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set(PathBuf, u64),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

impl NameChange {
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Set(path, _) | Self::Remove(path) | Self::Rename(_, path, _) => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Set(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// A planned fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) operation: Operation,
    /// A part of the names of the files that it concerns; empty for all files.
    pub(super) name: String,
    /// How many more operations of its kind succeed before it.
    pub(super) after: u64,
    pub(super) kind: io::ErrorKind,
}

#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) names: BTreeMap<PathBuf, u64>,
    pub(super) synced_names: BTreeMap<PathBuf, u64>,
    pub(super) pending: Vec<NameChange>,
    pub(super) directories: BTreeSet<PathBuf>,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) operations: u64,
    pub(super) power_off_at: Option<u64>,
    pub(super) off: bool,
    pub(super) syncs_do_nothing: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) capacity: Option<u64>,
    pub(super) trace: Vec<String>,
    next_node: u64,
}

/// The outcome of an operation.
pub(super) enum OperationOutcome {
    Go,
    /// The operation is done, or partly done, and then the power fails.
    Last,
    Fail(io::Error),
}

pub(super) fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

impl Disk {
    /// Counts an operation and decides its outcome.
    pub(super) fn begin(&mut self, operation: Operation, what: &Path) -> OperationOutcome {
        if self.off {
            return OperationOutcome::Fail(power_is_off());
        }
        let name = what.file_name().unwrap_or_default().to_string_lossy();
        if !matches!(operation, Operation::Read | Operation::Space) {
            self.operations += 1;
            self.trace.push(format!("{} {operation:?} {name}", self.operations));
            if self.power_off_at.is_some_and(|at| self.operations >= at) {
                self.off = true;
                return OperationOutcome::Last;
            }
        }
        let concerns = |fault: &Fault| fault.operation == operation && name.contains(&fault.name);
        match self.faults.iter().position(concerns) {
            Some(at) if self.faults[at].after == 0 => {
                let fault = self.faults.remove(at);
                OperationOutcome::Fail(io::Error::from(fault.kind))
            }
            Some(at) => {
                self.faults[at].after -= 1;
                OperationOutcome::Go
            }
            None => OperationOutcome::Go,
        }
    }

    pub(super) fn new_node(&mut self) -> u64 {
        self.next_node += 1;
        self.nodes.insert(self.next_node, Node::default());
        self.next_node
    }

    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    pub(super) fn sync_dir(&mut self, directory: &Path) {
        let (synced, pending) = self
            .pending
            .drain(..)
            .partition(|change: &NameChange| change.directory() == Some(directory));
        self.pending = pending;
        let synced: Vec<NameChange> = synced;
        for change in synced {
            change.apply(&mut self.synced_names);
        }
    }

    /// The bytes of all files that have a name.
    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|node| self.nodes.get(node))
            .map(Node::len)
            .sum()
    }

    /// The room that is left, and all of it. A disk that takes any number of bytes has room for some more.
    pub(super) fn space(&self) -> Space {
        let used = self.used();
        let size = self.capacity.unwrap_or(used + PLENTY);
        Space {
            free: size.saturating_sub(used),
            size,
        }
    }

    /// Whether `more` bytes fit.
    pub(super) fn has_room(&self, more: u64) -> bool {
        self.capacity.is_none_or(|capacity| self.used() + more <= capacity)
    }

    pub(super) fn uncertain(&self) -> usize {
        self.pending.len() + self.nodes.values().map(Node::uncertain).sum::<usize>()
    }

    /// The disk after all processes have ended while the system goes on.
    pub(super) fn outlive(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            synced_names: self.synced_names.clone(),
            pending: self.pending.clone(),
            directories: self.directories.clone(),
            syncs_do_nothing: self.syncs_do_nothing,
            capacity: self.capacity,
            next_node: self.next_node,
            ..Self::default()
        }
    }

    /// The disk after a power cut.
    pub(super) fn survive(&self, choose: &mut dyn FnMut(usize) -> usize) -> Self {
        let mut names = self.synced_names.clone();
        for change in &self.pending {
            if choose(2) == 1 {
                change.apply(&mut names);
            }
        }
        // Ordered by number, so that the same choices give the same disk.
        let mut order: Vec<_> = self.nodes.keys().copied().collect();
        order.sort_unstable();
        let nodes = order
            .into_iter()
            .map(|number| (number, self.nodes[&number].survive(choose)))
            .collect();
        Self {
            nodes,
            synced_names: names.clone(),
            names,
            directories: self.directories.clone(),
            capacity: self.capacity,
            next_node: self.next_node,
            ..Self::default()
        }
    }
}
