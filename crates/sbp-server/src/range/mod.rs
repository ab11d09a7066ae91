//! The range server: which offset a record gets, and what a fetch may see.
//!
//! The decisions are pure functions over a [`RangeTable`](table::RangeTable); the log, the clock and the connections are
//! around them in [`RangeServer`].

mod activity;
mod address_book;
mod append;
mod command;
mod copies;
mod elsewhere;
mod fetch;
mod found;
mod hub;
mod job;
mod leaving;
mod log_errors;
mod not_taken;
mod notifications;
mod observer;
mod orders;
mod outcome;
mod parked;
mod pending;
mod pressure;
mod questions;
mod ranges;
mod read;
mod readers;
mod replica_set;
mod replication;
mod requester;
mod retention;
mod seals;
mod server;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod tombstones;
mod upstream;
mod waiting;
mod writers;

pub(crate) use activity::RangeActivity;
pub(crate) use address_book::AddressBook;
pub(crate) use append::{AppendEntry, HeadFacts};
pub(crate) use copies::{EndTicket, Followers, Repeated};
pub(crate) use fetch::{FetchEntry, Limits, Readiness, Start, judge_fetch, resolve_start};
pub(crate) use found::{FetchOutcome, Found, ReadDone};
pub(crate) use hub::RangeHub;
pub(crate) use job::{AppendJob, LogContext};
pub(crate) use not_taken::end_not_told;
pub(crate) use outcome::{AppendDone, EntryId};
pub(crate) use ranges::Ranges;
pub(crate) use read::{LogRead, ReadJob};
pub(crate) use readers::Readers;
pub(crate) use replica_set::{CopyRecord, ReplicaSet};
pub(crate) use replication::{
    Feed, FeedEntry, FeedKind, FencedEnd, FollowJob, Heard, IncompleteRange, Refused, WantedSeal,
};
pub(crate) use requester::{Notification, Requester};
pub(crate) use server::RangeServer;
pub(crate) use stream::{FoundCopy, HeldRange, HostedStream, Phase, RangeState, StreamFacts};
pub(crate) use tombstones::SWEEP;
pub(crate) use upstream::Upstream;
pub(crate) use writers::WriterSequence;
#[cfg(test)]
pub(crate) use {
    append::AppendDecision,
    command::{Command, Effect, SealStep},
    table::{RangeTable, Scope},
    tests::Listener,
};
