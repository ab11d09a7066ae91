//! What belongs to a range that other servers hold too, beside its [`Replica`](sbp_replication::Replica): the entries that
//! followers need, the appends that wait until they are confirmed, whom there is something to send to, and requests about
//! its seal.

mod followers;
mod hearing;
mod outbox;
mod seal_work;
mod work;

pub(crate) use followers::Followers;
pub(super) use hearing::Hearing;
pub(super) use outbox::{Outbox, Outboxes};
pub(super) use seal_work::{Fencing, SealWork, WritingBack};
pub(super) use work::{CopyWork, MOST_ENTRIES, RecentEntry, Repeated};
