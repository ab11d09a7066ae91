//! What belongs to a range that other servers hold too, beside its [`Replica`](sbp_replication::Replica): the entries that
//! followers need, the appends that wait until they are confirmed, whom there is something to send to, and requests about
//! its seal.

mod fingerprint;
mod followers;
mod hearing;
mod kept;
mod outbox;
mod pace;
mod questions;
mod seal_work;
mod work;

pub(super) use fingerprint::Fingerprint;
pub(crate) use followers::Followers;
pub(super) use hearing::Hearing;
pub(super) use kept::Kept;
pub(super) use outbox::{Outbox, Outboxes};
pub(super) use pace::Pace;
pub(crate) use questions::EndTicket;
pub(super) use questions::Questions;
pub(super) use seal_work::{Fencing, SealWork, WritingBack};
pub(crate) use work::Repeated;
pub(super) use work::{CopyWork, MOST_ENTRIES, RecentEntry};
