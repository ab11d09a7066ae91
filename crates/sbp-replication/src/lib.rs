//! What makes several copies of a range one range: who acknowledges, what readers see, where a range ends and who goes on.
//!
//! Everything here is a pure state machine. It knows no socket, no disk, no clock and no runtime: the range server and the
//! placement driver around it bring what was received, what is synced and what time it is, and do what they are told.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`Entry`] | how much an entry takes of a range |
//! | [`Quorum`] | what is confirmed, how many votes a seal needs, where the range ends |
//! | [`Replica`] | what one server may do with its copy of a range: append, take, acknowledge, serve, vote |
//! | [`SealJob`] | how the placement driver ends a range whatever has become of its servers |
//! | [`leadership`] | which of several placement drivers leads, and for how long it may answer |
//! | [`EndWrite`], [`HighestTerm`] | which of two ends is the end, and which placement driver is followed |
//! | [`choose_next`] | which servers the next range is opened on, and which of them is its primary |
//! | [`Folding`] | which entries count for what is remembered of idempotent writers |
//! | [`EndQuestion`] | when a primary may say where a stream ends |
//! | [`Contact`] | whether a server may be cut off from the others, so that clients should not wait at it |
//! | [`Rules`] | the rules without which records are lost, doubled or hidden; tests break them one at a time |
//!
//! Things that are easy to get wrong, each found by a run of the world in `tests/world`:
//!
//! - What is written back to a server during a seal counts for that seal alone. Neither the server's answers to its primary
//!   nor a primary's own share may contain it: a second seal may have the server's vote from before, and end the range
//!   below. So a fence is made durable together with the place where the copy ended ([`Replica::fenced_at`]).
//! - A seal that has too few complete copies writes back to any server of the set that can be reached, also to one that did not
//!   vote; when nobody who has everything can be reached, it begins anew, and may find a lower end.
//! - The answer to an order to write back is for that order alone, also when it arrives later: it is no answer to the primary, and
//!   none to the order of another seal, to the same end or a lower one. The server may have lost meanwhile what it had, and said so
//!   with its vote ([`Rule::AskedAnew`]).
//! - A range that a server learns of by an order to fence it is never opened there: its primary may not know the end of the
//!   range before it, and would begin it with an older state of the writers.
//! - The state of the writers may come in parts. A copy that has some of them knows no more of the writers than one that has
//!   none, whatever its end is.
//! - A range that one server alone has begins without the state of the writers. A copy of it is taken once it is sealed, and never
//!   says anything of them: not to who has it, and not to who asks for the next primary ([`Rule::ContinuationTellsNoWriters`]).
//! - A sender that is told to go on at an earlier place is told so for each entry that was under way; only the first of these
//!   answers makes it begin again ([`Round`]).
//! - What a follower says beyond what it was ever sent is wrong, and so is then whatever else it says: none of it counts
//!   ([`Standing::ClaimsTooMuch`]).
//! - A server may have lost, when it is told a range's end, what it had when it voted. It says so, and counts no more among
//!   those that have everything; nobody else can know ([`Replica::says_incomplete`]).
//! - An append that the log of a primary dropped may be on its followers. Its fate is known when the range has its end.
//! - Whoever finds an open range fenced asks for its seal: a deposed placement driver may have begun one.

mod contact;
mod damage;
mod entry;
mod exchange;
mod folding;
pub mod leadership;
mod progress;
mod question;
mod quorum;
mod range;
mod replica;
mod rules;
mod seal;
mod succession;
mod term;
mod unconfirmed;

pub use contact::{Contact, PATIENCE};
pub use entry::Entry;
pub use exchange::{Answer, NotTaken, Offered, Recovered, Round, Standing, Verdict, Vote};
pub use folding::{Fold, Foldable, Folding};
pub use question::{EndQuestion, EndTold};
pub use quorum::Quorum;
pub use range::ReplicatedRange;
pub use replica::Replica;
pub use rules::{Rule, Rules};
pub use seal::{Forced, SealJob, SealStep, Sealed};
pub use succession::{Holder, NoSuccessor, choose_next};
pub use term::{EndWrite, HighestTerm, Order, Term};
pub use unconfirmed::{MOST_UNCONFIRMED, presumed_confirmed};
