//! The placement driver: which streams and ranges exist, and on which server.
//!
//! The decisions are pure: [`apply`] looks at a [`PlacementState`] and a [`Command`] and says what would change. The
//! change counts only when it is durable; then [`PlacementState::install`] makes it visible. Recovery installs the stored
//! records through the same door.

mod apply;
mod create;
mod describe;
mod driver;
mod list_ranges;
mod name;
mod records;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use apply::{Command, Reply};
pub(crate) use create::{Created, NewStream};
pub(crate) use describe::{Described, StreamQuery, describe_streams};
pub(crate) use driver::{MetadataJob, PlacementDriver};
pub(crate) use list_ranges::{Criterion, ListedPage, list_ranges};
pub(crate) use records::{RangeRecord, SchemaRecord, StreamRecord};
pub(crate) use settings::{RequestedSettings, Settings};
pub(crate) use state::{Change, PlacementState};
pub(crate) use token::TokenError;

/// Entries in a page of DESCRIBE_STREAMS or LIST_RANGES when the request names no limit, and the most it may name.
const MAX_PAGE: usize = 1_000;

/// The page size in force for a request's `limit`.
fn page_size(limit: i32) -> usize {
    match usize::try_from(limit) {
        Ok(limit) if (1..=MAX_PAGE).contains(&limit) => limit,
        _ => MAX_PAGE,
    }
}
