//! CREATE_STREAMS.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId, TimestampMs};

use super::name::check_name;
use super::records::{RangeRecord, StreamRecord};
use super::settings::{RequestedSettings, Settings};
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// A stream that somebody wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewStream {
    /// Empty: no name.
    pub(crate) name: String,
    pub(crate) settings: RequestedSettings,
}

/// A stream that is there now, whether this request made it or an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) stream: Arc<StreamRecord>,
    /// Its open range, or the last one.
    pub(crate) range: Arc<RangeRecord>,
}

/// Decides over the entries of one request, in order: a later entry sees what an earlier one made.
pub(crate) fn create_streams(
    state: &PlacementState,
    servers: &[ServerId],
    wanted: Vec<Result<NewStream, Refusal>>,
    now: TimestampMs,
) -> (Vec<Change>, Vec<Result<Created, Refusal>>) {
    let mut draft = Draft {
        state,
        servers,
        now,
        next_id: state.next_stream_id(),
        made: HashMap::new(),
        changes: vec![],
    };
    let results = wanted.into_iter().map(|stream| draft.create(stream?)).collect();
    let Draft {
        mut changes, next_id, ..
    } = draft;
    if next_id > state.next_stream_id() {
        changes.push(Change::NextStreamId(next_id));
    }
    (changes, results)
}

/// The state as it will be when the entries so far are durable.
struct Draft<'a> {
    state: &'a PlacementState,
    servers: &'a [ServerId],
    now: TimestampMs,
    next_id: StreamId,
    /// The named streams that earlier entries made.
    made: HashMap<Arc<str>, Created>,
    changes: Vec<Change>,
}

impl Draft<'_> {
    fn create(&mut self, wanted: NewStream) -> Result<Created, Refusal> {
        let NewStream { name, settings } = wanted;
        let settings = settings.resolve(self.servers.len())?;
        if name.is_empty() {
            return self.make(None, settings);
        }
        check_name(&name)?;
        match self.find(&name) {
            Some(existing) if existing.stream.settings == settings => Ok(existing),
            Some(existing) => Err(Refusal::new(
                ErrorCode::ALREADY_EXISTS,
                format!(
                    "\"{name}\" is stream {} with other settings: use it as it is, or another name",
                    existing.stream.id
                ),
            )),
            None => self.make(Some(Arc::from(name)), settings),
        }
    }

    fn find(&self, name: &str) -> Option<Created> {
        if let Some(made) = self.made.get(name) {
            return Some(made.clone());
        }
        let stream = self.state.stream_named(name)?;
        let range = self.state.last_range(stream.id)?;
        Some(Created {
            stream: Arc::clone(stream),
            range: Arc::clone(range),
        })
    }

    fn make(&mut self, name: Option<Arc<str>>, settings: Settings) -> Result<Created, Refusal> {
        let id = self.next_id;
        let Some(next) = id.0.checked_add(1) else {
            return Err(Refusal::new(
                ErrorCode::PD_INTERNAL_SERVER_ERROR,
                "there are no stream ids left",
            ));
        };
        self.next_id = StreamId(next);
        let replicas = usize::try_from(settings.replica_count).unwrap_or(0);
        let range = Arc::new(RangeRecord {
            key: RangeKey {
                stream: id,
                range: RangeIndex(0),
            },
            epoch: Epoch(0),
            start_offset: Offset::ZERO,
            end_offset: None,
            servers: self.servers.iter().copied().take(replicas).collect(),
            replica_count: settings.replica_count,
            ack_count: settings.ack_count,
        });
        let stream = Arc::new(StreamRecord {
            id,
            name: name.clone(),
            settings,
            created_at: self.now,
        });
        self.changes.push(Change::PutStream(Arc::clone(&stream)));
        self.changes.push(Change::PutRange(Arc::clone(&range)));
        let created = Created { stream, range };
        if let Some(name) = name {
            self.made.insert(name, created.clone());
        }
        Ok(created)
    }
}
