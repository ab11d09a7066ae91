//! The range server: which offset a record gets, and what a fetch may see.
//!
//! The decisions are pure functions over a [`RangeTable`](table::RangeTable); the log, the clock and the connections are
//! around them in [`RangeServer`].

mod activity;
mod append;
mod burial;
mod command;
mod fetch;
mod letters;
mod log_errors;
mod observer;
mod orders;
mod parked;
mod pending;
mod pressure;
mod retention;
mod seals;
mod server;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod upstream;
mod waiting;
mod writers;

pub(crate) use activity::RangeActivity;
pub(crate) use append::{AppendEntry, HeadFacts};
pub(crate) use burial::{Graves, SWEEP};
pub(crate) use fetch::{
    FetchEntry, Limits, Positions, Read, Readiness, Search, Start, judge_fetch, resolve_start, time_elsewhere,
};
pub(crate) use log_errors::read_refusal;
pub(crate) use server::{AppendJob, RangeHub, RangeServer, Ranges};
pub(crate) use stream::{HeldRange, Phase, RangeState, StreamFacts};
pub(crate) use upstream::Upstream;
pub(crate) use writers::Claim;
#[cfg(test)]
pub(crate) use {
    append::Verdict,
    command::{Command, Effect, SealStep},
    table::{RangeTable, Scope},
};
