//! The settings of a stream: defaults, limits, and changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_messages::Stream;

use super::schema::SchemaRecord;
use crate::refusal::Refusal;

/// The settings in force. All defaults are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The number of copies of each record.
    pub(crate) replica_count: i8,
    /// The number of copies that must be durable before an append is acknowledged.
    pub(crate) ack_count: i8,
    /// How many milliseconds a record is kept after its append; 0: for ever.
    pub(crate) retention_period_ms: i64,
    /// How many bytes are kept; `None`: no bound.
    pub(crate) retention_bytes: Option<i64>,
    /// The schema, if the stream has one. Compared by its canonical form, so field metadata does not matter.
    pub(crate) schema: Option<Arc<SchemaRecord>>,
    /// Key-value pairs of the user.
    pub(crate) properties: BTreeMap<String, String>,
}

/// Settings as a request gives them. For a new stream 0 and `None` are the server's default; for one that exists they
/// keep the present value.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedSettings {
    pub(crate) replica_count: i8,
    pub(crate) ack_count: i8,
    /// Always replaces the present value: 0 means "for ever".
    pub(crate) retention_period_ms: i64,
    /// As on the wire: 0 is the default or the present value, [`Stream::UNBOUNDED`] no bound.
    pub(crate) retention_bytes: i64,
    pub(crate) schema: Option<Arc<SchemaRecord>>,
    pub(crate) properties: Option<BTreeMap<String, String>>,
}

impl RequestedSettings {
    /// Fills in the defaults and checks the result.
    pub(crate) fn resolve(self) -> Result<Settings, Refusal> {
        let Self {
            replica_count,
            ack_count,
            retention_period_ms,
            retention_bytes,
            schema,
            properties,
        } = self;
        let replica_count = if replica_count == 0 { 1 } else { replica_count };
        if replica_count < 0 {
            return Err(Refusal::invalid(format!(
                "a stream cannot have {replica_count} replicas"
            )));
        }
        // A majority, so that any two sets of acknowledging replicas have one in common.
        let ack_count = if ack_count == 0 {
            replica_count / 2 + 1
        } else {
            ack_count
        };
        if !(1..=replica_count).contains(&ack_count) {
            return Err(Refusal::invalid(format!(
                "{ack_count} acknowledgements cannot be had from {replica_count} replicas: ask for 1 to {replica_count}"
            )));
        }
        if retention_period_ms < 0 || retention_bytes < Stream::UNBOUNDED {
            return Err(Refusal::invalid(format!(
                "retention of {retention_period_ms} ms and {retention_bytes} bytes: neither may be negative (bytes: -1 is no bound)"
            )));
        }
        Ok(Settings {
            replica_count,
            ack_count,
            retention_period_ms,
            retention_bytes: Some(retention_bytes).filter(|bytes| *bytes > 0),
            schema,
            properties: properties.unwrap_or_default(),
        })
    }

    /// The settings of a stream that has `old` ones, checked as a whole. Where the number of replicas changes and nothing is
    /// said of acknowledgements, a majority acknowledges: the old number may be too many, or too few to be safe.
    pub(crate) fn merge(self, old: &Settings) -> Result<Settings, Refusal> {
        let replica_count = match self.replica_count {
            0 => old.replica_count,
            new => new,
        };
        let ack_count = match self.ack_count {
            0 if replica_count == old.replica_count => old.ack_count,
            new => new,
        };
        Self {
            replica_count,
            ack_count,
            retention_period_ms: self.retention_period_ms,
            retention_bytes: if self.retention_bytes == 0 {
                old.retention_bytes.unwrap_or(Stream::UNBOUNDED)
            } else {
                self.retention_bytes
            },
            schema: merge_schema(self.schema, old.schema.as_ref())?,
            properties: self.properties.or_else(|| Some(old.properties.clone())),
        }
        .resolve()
    }
}

fn merge_schema(
    new: Option<Arc<SchemaRecord>>,
    old: Option<&Arc<SchemaRecord>>,
) -> Result<Option<Arc<SchemaRecord>>, Refusal> {
    match (new, old) {
        (None, old) => Ok(old.cloned()),
        (Some(_), None) => Err(Refusal::invalid(
            "a stream that was created without a schema cannot be given one: create another stream",
        )),
        (Some(new), Some(old)) if new == *old || new.is_extension_of(old) => Ok(Some(new)),
        (Some(_), Some(_)) => Err(Refusal::invalid(
            "the schema may only grow by nullable columns at its end",
        )),
    }
}
