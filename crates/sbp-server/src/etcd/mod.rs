//! A placement driver among several, whose metadata are in an etcd that all of them share.
//!
//! | module | what it is |
//! | --- | --- |
//! | `keys` | which key has what |
//! | `records` | changes as writes of keys, and keys as changes |
//! | `identify` | the id of the cluster, written once |
//! | `membership` | who leads and who lives, for whoever asks: the state machine of leadership with a clock |
//! | `store` | the store of one term: a deposed placement driver writes nothing, and each transaction happens once or never |
//! | `reading` | everything in the store as of one moment |
//! | `campaign` | the task that keeps the lease, looks who leads, and has the placement driver lead or rest |

mod campaign;
mod identify;
mod keys;
mod membership;
mod reading;
mod records;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use campaign::{Campaign, CampaignParts};
pub(crate) use membership::Membership;
