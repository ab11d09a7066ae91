//! What makes several copies of a range one range: who acknowledges, what readers see, where a range ends and who goes on.
//!
//! Everything here is a pure state machine. It knows no socket, no disk, no clock and no runtime: the range server and the
//! placement driver around it bring what was received, what is synced and what time it is, and do what they are told.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`Position`] | a place in a range, entries without offsets counted |
//! | [`Quorum`] | what is confirmed, how many votes a seal needs, where the range ends |
//! | [`Replica`] | what one server may do with its copy of a range: append, take, acknowledge, serve, vote |
//! | [`SealJob`] | how the placement driver ends a range whatever has become of its servers |
//! | [`choose_next`] | which servers the next range is opened on, and which of them is its primary |
//! | [`Folding`] | which entries count for what is remembered of idempotent writers |
//! | [`Rules`] | the rules without which records are lost, doubled or hidden; tests break them one at a time |

mod folding;
mod position;
mod progress;
mod quorum;
mod range;
mod replica;
mod rules;
mod seal;
mod succession;

pub use folding::{Fold, Folding};
pub use position::{Entry, Position};
pub use quorum::Quorum;
pub use range::ReplicatedRange;
pub use replica::{Answer, NotTaken, Offered, Recovered, Replica, Standing, Verdict, Vote};
pub use rules::{Rule, Rules};
pub use seal::{SealJob, SealStep, Sealed};
pub use succession::{Holder, NoSuccessor, choose_next};
