//! The cluster's id in the store.

use std::path::Path;

use bytes::Bytes;
use sbp_etcd::{Client, Committed, Compare, EtcdError, KeyValue, Transaction, Write};
use sbp_types::ClusterId;

use super::keys::Keys;
use crate::error::StartError;
use crate::placement::new_identity;

/// Why it is not known whether this server belongs to the cluster whose metadata are in the store, or that it does not.
#[derive(Debug)]
pub(super) enum NotIdentified {
    /// The store has not answered.
    Store(EtcdError),
    /// The server belongs to another cluster than this one, or than the store, which has none.
    Other(Option<ClusterId>),
    /// What the key has is no id.
    Unreadable(String),
    /// No id can be drawn.
    Random(std::io::Error),
}

impl NotIdentified {
    /// As the error of the server in `directory`, of the cluster `known`, with its metadata in `store`. `None`: the store may
    /// answer later.
    pub(super) fn into_error(self, directory: &Path, known: Option<ClusterId>, store: &str) -> Option<StartError> {
        match self {
            Self::Store(_) => None,
            Self::Other(found) => Some(StartError::OtherCluster {
                path: directory.to_owned(),
                known: known.map(|known| known.to_string()).unwrap_or_default(),
                store: store.to_owned(),
                found: match found {
                    Some(found) => format!("those of the cluster {found}"),
                    None => "those of no cluster: it was emptied, or is a new one".to_owned(),
                },
            }),
            Self::Unreadable(what) => Some(StartError::StoredClusterId {
                store: store.to_owned(),
                what,
            }),
            Self::Random(source) => {
                let what = "draw random bytes for the id of the cluster";
                Some(StartError::io(what)(source))
            }
        }
    }
}

/// The cluster's id. Where there is none yet, one is drawn and put, unless another placement driver has been faster: the key is
/// written once, whoever leads, and what is there counts. A server that belongs to a cluster already, `known`, puts none: its
/// cluster had one.
pub(super) async fn identify(
    client: &Client,
    keys: &Keys,
    known: Option<ClusterId>,
) -> Result<ClusterId, NotIdentified> {
    let key = keys.id();
    let (found, _) = client.get(key.clone()).await.map_err(NotIdentified::Store)?;
    let found = found.as_ref().map(read).transpose()?;
    match (found, known) {
        (Some(found), Some(known)) if found != known => Err(NotIdentified::Other(Some(found))),
        (Some(found), _) => Ok(found),
        (None, Some(_)) => Err(NotIdentified::Other(None)),
        (None, None) => begin(client, key).await,
    }
}

async fn begin(client: &Client, key: Bytes) -> Result<ClusterId, NotIdentified> {
    let drawn = ClusterId(new_identity().map_err(NotIdentified::Random)?);
    let transaction = Transaction {
        compares: vec![Compare::Absent(key.clone())],
        writes: vec![Write::Put(key.clone(), Bytes::from(drawn.to_string()), None)],
        otherwise_read: vec![key.clone()],
    };
    match client.commit(&transaction).await.map_err(NotIdentified::Store)? {
        Committed::Done { .. } => Ok(drawn),
        Committed::Refused { found } => match found.into_iter().next().flatten() {
            Some(found) => read(&found),
            None => Err(NotIdentified::Unreadable(format!(
                "{} was removed while it was read",
                key.escape_ascii()
            ))),
        },
    }
}

fn read(found: &KeyValue) -> Result<ClusterId, NotIdentified> {
    let text = std::str::from_utf8(&found.value).ok();
    let id = text.and_then(|text| text.parse().ok());
    id.ok_or_else(|| NotIdentified::Unreadable(format!("the value of {} is no id", found.key.escape_ascii())))
}
