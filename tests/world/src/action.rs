//! The things that may happen in a world.

use sbp_types::Position;

/// One thing that may happen. Servers, drivers and writers are named by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A writer sends a batch to a server.
    Append {
        /// Which writer.
        writer: u8,
        /// Which batch.
        sequence: u8,
        /// To which server.
        node: usize,
    },
    /// A writer is opened again: its new instance fences the older one.
    FenceWriter {
        /// Which writer.
        writer: u8,
        /// By which server.
        node: usize,
    },
    /// A server sends the next entry of a range to another.
    Send {
        /// Which range.
        range: i32,
        /// Who sends.
        from: usize,
        /// To whom.
        to: usize,
        /// Up to which end, if it is written back or copied.
        sealed_end: Option<Position>,
    },
    /// A server has waited long enough for an answer, and begins anew where the other one's answers end.
    Retry {
        /// Which range.
        range: i32,
        /// Who sends.
        from: usize,
        /// To whom.
        to: usize,
        /// Up to which end, if it is written back or copied.
        sealed_end: Option<Position>,
    },
    /// An entry arrives.
    Deliver(usize),
    /// A server answers what it was sent by another, and is told what is confirmed.
    Report {
        /// Which range.
        range: i32,
        /// Who has synced.
        from: usize,
        /// Who is told.
        to: usize,
        /// Up to which end, if it is written back or copied.
        sealed_end: Option<Position>,
    },
    /// An answer arrives.
    Hear(usize),
    /// The connection between two servers breaks; what is on its way may still arrive, or not.
    Break {
        /// Who sends.
        from: usize,
        /// To whom.
        to: usize,
        /// Whether what is on its way is lost.
        is_lost: bool,
    },
    /// A server's disk syncs at most so many entries of each range, and the metadata.
    Sync {
        /// Which server.
        node: usize,
        /// How many entries.
        entries: usize,
    },
    /// A server makes durable what it knows of ranges, their fences and ends, and the term.
    Commit(usize),
    /// An entry on a server's disk cannot be read any more.
    Damage {
        /// Which server.
        node: usize,
        /// Which range.
        range: i32,
        /// Which entry of its log.
        place: usize,
    },
    /// The disk of a server that is away loses the end of an open range, so that nobody knows what there was.
    DamageEnd {
        /// Which server.
        node: usize,
        /// Which range.
        range: i32,
        /// So many entries are left.
        kept: usize,
    },
    /// What one says does not reach the other any more, until that is mended. Servers are named by their place, placement
    /// drivers by the places behind them.
    Cut {
        /// Who says it.
        from: usize,
        /// Who does not hear it.
        to: usize,
    },
    /// It does again.
    Join {
        /// Who says it.
        from: usize,
        /// Who hears it.
        to: usize,
    },
    /// A server that has not heard another one for so long counts on it no more.
    Miss {
        /// Which server.
        node: usize,
        /// Whom it misses.
        of: usize,
    },
    /// A placement driver trims the stream.
    Trim {
        /// Which driver.
        driver: usize,
        /// Records before this offset go.
        start: i64,
    },
    /// A placement driver lets a sealed range have a copy on another server.
    Move {
        /// Which driver.
        driver: usize,
        /// Which range.
        range: i32,
        /// Which server.
        to: usize,
    },
    /// A server's log drops what is queued.
    Drop(usize),
    /// A server is killed.
    Crash(usize),
    /// A server starts again.
    Start(usize),
    /// A server loses its disk, and starts with an empty one.
    Wipe(usize),
    /// A placement driver gives a server a number.
    Number {
        /// Which driver.
        driver: usize,
        /// Which server.
        node: usize,
    },
    /// A placement driver becomes the leader. The one before it does not know.
    Lead(usize),
    /// A placement driver begins to seal the open range.
    Seal(usize),
    /// It orders a server to fence the range.
    Fence {
        /// Which driver.
        driver: usize,
        /// Which server.
        node: usize,
    },
    /// It receives the vote of a server.
    Vote {
        /// Which driver.
        driver: usize,
        /// Which server.
        node: usize,
    },
    /// It decides the end by the votes that it has.
    Decide(usize),
    /// An administrator has a placement driver end its seal without what nobody who voted can read.
    Force(usize),
    /// It orders the rest to be written back.
    WriteBack(usize),
    /// It hears that a server has everything up to the end.
    WrittenBack {
        /// Which driver.
        driver: usize,
        /// Which server.
        node: usize,
    },
    /// It finds that a server, on which the seal counts, cannot be reached.
    Away {
        /// Which driver.
        driver: usize,
        /// Which server, by its number.
        server: i32,
    },
    /// It begins to seal anew, because nobody who has everything up to the end can be reached.
    Again(usize),
    /// It stores the end and the next range.
    Store {
        /// Which driver.
        driver: usize,
        /// The server that it likes best for the next range.
        first: usize,
        /// Whether the store's answer arrives.
        is_answered: bool,
    },
    /// It tells a server what is stored.
    Tell {
        /// Which driver.
        driver: usize,
        /// Which server.
        node: usize,
    },
    /// A complete copy of a sealed range is sent to a server of the range that lacks something.
    Copy {
        /// Which range.
        range: i32,
        /// Who has it.
        from: usize,
        /// Who lacks it.
        to: usize,
    },
    /// A placement driver hears that the copy is complete.
    Copied {
        /// Which driver.
        driver: usize,
        /// Which range.
        range: i32,
        /// Which server.
        to: usize,
    },
    /// A reader asks a server where the stream ends.
    Ask(usize),
    /// Another server of the set says that it is not fenced.
    SayUnfenced {
        /// Who was asked by the reader.
        node: usize,
        /// Who says it.
        by: usize,
    },
    /// The store is put back to its beginning.
    Restore,
    /// Where that rule is broken: a server takes the place of another in the open range.
    Replace {
        /// Who leaves.
        node: usize,
        /// Who comes.
        by: usize,
    },
}
