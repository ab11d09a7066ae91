//! The placement driver: which streams and ranges exist, and on which server.
//!
//! The decisions are pure: [`apply`](apply::apply) takes a [`PlacementState`] and a [`Command`](apply::Command) and
//! returns what would change and what range servers have to be told. Once the changes are durable,
//! [`PlacementState::install`] makes them visible and the orders are given. Recovery installs the stored records
//! through the same function. Around the decisions there is one thread, the [`Worker`](worker::Worker), which keeps the
//! operations of each stream in order while range servers do their part.

mod apply;
mod avoided;
mod choose;
mod copies;
mod create;
mod delete;
mod describe;
mod drain;
mod driver;
mod effects;
mod election;
mod identity;
mod life;
mod list_ranges;
mod name;
mod next_range;
mod on_servers;
mod operations;
mod range_servers;
mod records;
mod registry;
mod request;
mod schema;
mod seal;
mod settings;
mod shared_end;
mod state;
mod store;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod token;
mod trim;
mod update;
mod upkeep;
mod worker;

pub(crate) use choose::ServerLoad;
pub(crate) use create::NewStream;
pub(crate) use describe::{Described, describe_streams};
pub(crate) use driver::PlacementDriver;
pub(crate) use effects::Outcome;
pub(crate) use election::{Election, WITH_COPY_NOTES};
pub(crate) use identity::{identify_streams, new_identity};
pub(crate) use life::Life;
pub(crate) use list_ranges::{Listed, ListedPage, list_ranges};
#[cfg(test)]
pub(crate) use range_servers::NoOthers;
pub(crate) use range_servers::{AbandonedEnd, RangeServer, RangeServers};
pub(crate) use records::{RangeRecord, ServerRecord, StreamRecord};
pub(crate) use request::{MetadataJob, Outcomes, Request};
pub(crate) use schema::SchemaRecord;
pub(crate) use seal::{NewRange, SealFor, SealWish};
pub(crate) use settings::{RequestedSettings, Settings};
pub(crate) use state::{Change, PlacementState};
pub(crate) use store::{CommitError, PlacementStore};
pub(crate) use update::StreamUpdate;
pub(crate) use worker::DriverParts;

/// The page size of DESCRIBE_STREAMS and LIST_RANGES when the request names none, and the largest it may name.
const MAX_PAGE: usize = 1_000;

/// The page size for a request's `limit`.
fn page_size(limit: i32) -> usize {
    match usize::try_from(limit) {
        Ok(limit) if (1..=MAX_PAGE).contains(&limit) => limit,
        _ => MAX_PAGE,
    }
}
