//! The way from the queue to stable storage: queued entries become a group, which is written and synced.

pub(crate) mod commit_leader;
pub(crate) mod group_builder;
pub(crate) mod queue;
pub(crate) mod writer;
