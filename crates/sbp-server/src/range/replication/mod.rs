//! Ranges that other servers hold too: what goes to the followers, what comes from the primary, and what is answered when
//! it is confirmed.
//!
//! What a copy may do is decided by [`Replica`](sbp_replication::Replica), which is part of the
//! [`RangeState`](super::stream::RangeState). Here are the bytes and the requesters around it.

mod compare;
mod damage;
mod ends;
mod feed;
mod follow;
mod hearing;
mod seal;
mod settle;
mod table;
mod turn;

pub(crate) use damage::IncompleteRange;
pub(crate) use feed::{Feed, FeedEntry, FeedKind, Heard, Refused};
pub(crate) use follow::FollowJob;
pub(crate) use hearing::WantedSeal;
pub(crate) use seal::FencedEnd;
