//! What servers say to each other about a range, and what one finds of it when it starts.

use sbp_types::{Epoch, Position, ServerId};

use crate::entry::Entry;
use crate::range::ReplicatedRange;

/// What a server finds of a range when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// Everything before it is on the disk.
    pub synced: Position,
    /// Where the copy begins: where the range does or, if it was made from a trimmed one, where [`Verdict::Begin`] let it.
    pub begins_at: Position,
    /// The place behind all parts of the state of the writers that begins the range, if one of them is here. A part says
    /// how many there are.
    pub writers_end: Option<Position>,
    /// Where the copy ended when it was fenced, if it was: what [`fenced_at`](crate::Replica::fenced_at) said when that was
    /// made durable.
    pub fenced_at: Option<Position>,
    /// The range's end, if the server was told.
    pub end: Option<Position>,
    /// In how many parts the state of the writers was sent that closes the copy, if all of them are on the disk.
    pub closed: Option<u32>,
    /// From where on another server had something else, if one had: what [`disputed`](crate::Replica::disputed) said.
    pub disputed: Option<Position>,
}

impl Recovered {
    /// A copy that begins where the range does and ends here, of which nothing else is known.
    #[must_use]
    pub fn up_to(synced: Position, range: &ReplicatedRange) -> Self {
        Self {
            synced,
            begins_at: range.beginning(),
            writers_end: None,
            fenced_at: None,
            end: None,
            closed: None,
            disputed: None,
        }
    }
}

/// An entry that another server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offered {
    /// The server that sends it.
    pub from: ServerId,
    /// The epoch of the range, as the sender knows it.
    pub epoch: Epoch,
    /// Where it stands. The state of the writers that closes a copy stands behind the range's end.
    pub at: Position,
    /// How much it takes.
    pub entry: Entry,
    /// What the sender knows to be confirmed.
    pub confirmed: Position,
    /// The range's end, where the entry is written back or copied.
    pub sealed_end: Option<Position>,
}

/// What to do with an entry that another server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Give it to the log, and answer when it is synced.
    Take,
    /// The copy begins anew with this entry: what is here of the range stands before it and is trimmed. Else as
    /// [`Take`](Self::Take).
    Begin,
    /// It is here: compare the two, and answer when it is synced.
    Held,
    /// It is here, damaged: put this in its place, call [`mended`](crate::Replica::mended) when that is synced, and answer.
    Mend,
    /// It is a part of the state of the writers that closes the copy. It belongs to no place of the range: keep it beside,
    /// call [`closing_synced`](crate::Replica::closing_synced) when it is on the disk, and answer. With its first part,
    /// forget those that another server sent.
    Close,
    /// Something before it is missing: the sender goes on here.
    GoOn(Position),
    /// Nothing is taken.
    Refused(NotTaken),
}

/// Why a copy takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotTaken {
    /// Another server is the range's primary.
    NotPrimary,
    /// This server has to have the range sealed: in an earlier life it was its primary, its log dropped what was queued, or a
    /// follower has less than it acknowledged.
    NeedsSeal,
    /// The range is being sealed.
    Fenced,
    /// The range is sealed.
    Sealed,
    /// The state of the writers, which begins the range, is missing, or some of its parts are.
    WritersMissing,
    /// As many entries as may be wait to be confirmed: the append waits, or is asked to come again.
    TooManyUnconfirmed,
    /// The range has another epoch here.
    OtherEpoch,
    /// Where the copy ends is not known, because of damage.
    Damaged,
    /// The sender has nothing before it, because that is trimmed; this server was not told.
    TrimUnknown,
    /// It closes a copy, and this server was not told that the range ends there.
    EndUnknown,
    /// No such entry can stand there.
    OutOfPlace,
}

/// Tells entries that were sent before a sender began again at an earlier place, or was ordered anew to send them, from those
/// that it sent since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Round {
    /// Which order of this sender, of all that it was given; 0 for what it sends as primary.
    pub(crate) order: u32,
    /// How often it began again since.
    pub(crate) again: u32,
}

/// What a follower answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Everything before this place is synced there.
    Synced(Position),
    /// The follower's copy ends here: send what follows. With many entries under way each is answered so; the first answer
    /// makes the sender begin again, the others are older than that ([`Round`]).
    GoOn(Position),
    /// It takes nothing: nothing more is sent before the connection is made anew or
    /// [`disconnected`](crate::Replica::disconnected) is called for another reason.
    Refused(NotTaken),
}

impl Answer {
    /// The place that it names.
    #[must_use]
    pub fn place(self) -> Option<Position> {
        match self {
            Self::Synced(at) | Self::GoOn(at) => Some(at),
            Self::Refused(_) => None,
        }
    }
}

/// What a fenced server says when a range is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// Its synced end.
    pub end: Position,
    /// Everything before this place can be read: the synced end, or where damage begins.
    pub whole_to: Position,
    /// Where its copy begins: where the range does, or where it was made from a trimmed one.
    pub begins_at: Position,
    /// The place behind all parts of the state of the writers that begins the range, if one of them is there.
    pub writers_end: Option<Position>,
}

/// What an answer of another server means for the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It goes on.
    Sound,
    /// The follower has less than it acknowledged, or something else: the range has to be sealed.
    FollowerLost,
    /// The follower says that it has what it was never sent. That counts for nothing, and it is sent nothing more before the
    /// connection is made anew.
    ClaimsTooMuch,
    /// The other server takes nothing. Where it is fenced, the range has to be sealed, unless that is under way.
    Refused(NotTaken),
}
