//! What a commit stores: one JSON object, one record of the cursor's stream.
//!
//! ```text
//! {"version": 1, "holder": "5f0c…", "commit": 7, "positions": [{"stream": 3, "name": "orders", "identity": "9c…",
//!  "next": 12}]}
//! ```
//!
//! A record is the whole state, so the last one is all that is needed. Fields may be added under the same version;
//! a reader passes over those that it does not know. A version that it does not know it refuses.

use std::collections::BTreeMap;
use std::fmt;

use sbp_types::{NotAnIdentity, Offset, StreamId, StreamIdentity};
use serde::{Deserialize, Serialize};

use crate::unique::unique;

/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Who made a commit: a name that each holder makes up for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Holder(String);

impl Holder {
    /// A name that no holder had before.
    pub(super) fn new() -> Self {
        let (high, low) = unique();
        Self(format!("{high:016x}{low:016x}"))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where reading goes on, stream by stream.
pub(super) type Places = BTreeMap<StreamId, CommittedPlace>;

/// What a cursor says of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedPlace {
    /// The stream.
    pub stream: StreamId,
    /// Its name when the place was committed, for people: a name can be given to another stream later.
    pub name: String,
    /// Its identity, where it was known then.
    pub identity: Option<StreamIdentity>,
    /// The first offset that is not done.
    pub next: Offset,
}

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommitRecord {
    pub(super) holder: Holder,
    /// Counted by the holder, from 1.
    pub(super) commit: u64,
    pub(super) places: Places,
}

/// Why a record of a cursor's stream is no commit that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    /// The record is something else.
    #[error("it is no commit: {0}")]
    Unreadable(String),
    /// A later version of this library wrote it.
    #[error("it is a commit of version {0}, and this is read by a newer client only")]
    Version(u32),
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    holder: Holder,
    commit: u64,
    positions: Vec<WrittenPlace>,
}

#[derive(Serialize, Deserialize)]
struct WrittenPlace {
    stream: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    next: i64,
}

/// What every version has.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

impl CommitRecord {
    /// The record's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let positions = self.places.values().map(|place| WrittenPlace {
            stream: place.stream.0,
            name: place.name.clone(),
            identity: place.identity.map(|identity| identity.to_string()),
            next: place.next.0,
        });
        let written = Written {
            version: VERSION,
            holder: self.holder.clone(),
            commit: self.commit,
            positions: positions.collect(),
        };
        serde_json::to_vec(&written).expect("numbers and strings always have a JSON form")
    }

    /// Reads a record.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let unreadable = |error: serde_json::Error| RecordError::Unreadable(error.to_string());
        let AnyVersion { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(unreadable)?;
        let mut places = Places::new();
        for place in written.positions {
            if place.stream < 1 || place.next < 0 {
                let what = format!("stream {} at offset {}", place.stream, place.next);
                return Err(RecordError::Unreadable(what));
            }
            let identity = place.identity.as_deref().map(str::parse).transpose();
            let identity = identity.map_err(|error: NotAnIdentity| RecordError::Unreadable(error.to_string()))?;
            let stream = StreamId(place.stream);
            let place = CommittedPlace {
                stream,
                name: place.name,
                identity,
                next: Offset(place.next),
            };
            places.insert(stream, place);
        }
        Ok(Self {
            holder: written.holder,
            commit: written.commit,
            places,
        })
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{Offset, StreamId, StreamIdentity};

    use super::{CommitRecord, CommittedPlace, Holder, Places, RecordError};

    #[test]
    fn what_is_written_is_read() {
        let place = |stream, name: &str, next| {
            let place = CommittedPlace {
                stream: StreamId(stream),
                name: name.to_owned(),
                identity: (!name.is_empty()).then_some(StreamIdentity([0x5a; 16])),
                next: Offset(next),
            };
            (place.stream, place)
        };
        let record = CommitRecord {
            holder: Holder::new(),
            commit: 7,
            places: Places::from([place(3, "orders", 12), place(9, "", i64::MAX)]),
        };
        assert_eq!(CommitRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn later_fields_are_passed_over_and_later_versions_refused() {
        let more = br#"{"version":1,"new":[1],"holder":"a","commit":1,"positions":[{"stream":1,"next":2,"more":0}]}"#;
        let read = CommitRecord::decode(more).expect("a field more does no harm");
        assert_eq!(read.places[&StreamId(1)].next, Offset(2));
        assert_eq!(read.places[&StreamId(1)].identity, None, "written by an older client");
        assert_eq!(
            CommitRecord::decode(br#"{"version":2,"shape":"other"}"#),
            Err(RecordError::Version(2))
        );
    }

    #[test]
    fn what_is_no_commit_is_an_error() {
        for bytes in [
            &b""[..],
            b"{}",
            b"\xff",
            br#"{"version":1}"#,
            br#"{"version":1,"holder":"a","commit":1,"positions":[{"stream":0,"next":2}]}"#,
            br#"{"version":1,"holder":"a","commit":1,"positions":[{"stream":1,"next":-1}]}"#,
            br#"{"version":1,"holder":"a","commit":1,"positions":[{"stream":1,"identity":"5a5a","next":1}]}"#,
        ] {
            assert!(
                matches!(CommitRecord::decode(bytes), Err(RecordError::Unreadable(_))),
                "{bytes:?}"
            );
        }
    }
}
