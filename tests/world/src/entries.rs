//! What is stored: batches of one record, fences, and the state of the writers.

use sbp_replication::Entry;
use sbp_types::{Offset, Position};

/// A writer's batch of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Batch {
    pub(crate) writer: u8,
    pub(crate) epoch: u8,
    pub(crate) sequence: u8,
}

/// What a writer asks to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Append {
    Batch(Batch),
    Fence { writer: u8, epoch: u8 },
}

/// What an entry of a range says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    Batch(Batch),
    Fence {
        writer: u8,
        epoch: u8,
    },
    /// One part of the state of all writers.
    Writers {
        part: u32,
        parts: u32,
        writers: Writers,
    },
}

impl Content {
    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Batch(_) => Entry::Records(1),
            Self::Fence { .. } => Entry::Mark,
            Self::Writers { part, parts, .. } => Entry::Writers {
                part: *part,
                parts: *parts,
            },
        }
    }
}

/// An entry in a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Logged {
    pub(crate) at: Position,
    pub(crate) content: Content,
    /// Whether its primary took it after a fence with a higher epoch had been acknowledged.
    pub(crate) is_late: bool,
    /// Whether this copy of it cannot be read.
    pub(crate) is_damaged: bool,
}

impl Logged {
    pub(crate) fn new(at: Position, content: Content) -> Self {
        Self {
            at,
            content,
            is_late: false,
            is_damaged: false,
        }
    }

    /// Whether a trim up to here lets it go: what begins the range stays.
    pub(crate) fn is_before(&self, start: Offset) -> bool {
        let is_writers = matches!(self.content, Content::Writers { .. });
        !is_writers && self.at.offset < start && self.end().offset <= start
    }

    /// The place behind it.
    pub(crate) fn end(&self) -> Position {
        self.content.entry().end(self.at).expect("few entries")
    }
}

/// What is remembered of the writers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Writers(Vec<Writer>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Writer {
    epoch: u8,
    /// Where each of its batches is, by sequence, as far as that is remembered.
    batches: Vec<Option<Offset>>,
}

/// How a batch stands to what its writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Next,
    /// Where it is; `None` if that is not remembered.
    Repeat(Option<Offset>),
    Gap,
    Fenced,
}

impl Writer {
    /// The one that says more.
    fn newer(self, other: &Self) -> Self {
        if *other == Self::default() { self } else { other.clone() }
    }
}

impl Writers {
    /// The parts of this state, of which the last one has the first writer.
    pub(crate) fn parts(&self, parts: u32) -> impl Iterator<Item = Content> + '_ {
        (0..parts).map(move |part| {
            let is_here = |place: usize| parts - 1 - u32::try_from(place).expect("few writers") % parts == part;
            let writers = self.0.iter().enumerate();
            let writers = writers.map(|(place, one)| if is_here(place) { one.clone() } else { Writer::default() });
            Content::Writers {
                part,
                parts,
                writers: Self(writers.collect()),
            }
        })
    }

    fn writer(&mut self, writer: u8) -> &mut Writer {
        let place = usize::from(writer);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Writer::default);
        }
        &mut self.0[place]
    }

    pub(crate) fn fold(&mut self, logged: &Logged) {
        match &logged.content {
            Content::Batch(batch) => {
                let writer = self.writer(batch.writer);
                writer.epoch = writer.epoch.max(batch.epoch);
                writer.batches.truncate(usize::from(batch.sequence));
                writer.batches.resize(usize::from(batch.sequence), None);
                writer.batches.push(Some(logged.at.offset));
            }
            Content::Fence { writer, epoch } => {
                let writer = self.writer(*writer);
                writer.epoch = writer.epoch.max(*epoch);
            }
            Content::Writers { part, writers, .. } => {
                if *part == 0 {
                    *self = Self::default();
                }
                self.0.resize_with(self.0.len().max(writers.0.len()), Writer::default);
                let known = self.0.iter_mut().zip(&writers.0);
                known.for_each(|(one, said)| *one = one.clone().newer(said));
            }
        }
    }

    pub(crate) fn judge(&self, batch: Batch) -> Judgement {
        let unknown = Writer::default();
        let writer = self.0.get(usize::from(batch.writer)).unwrap_or(&unknown);
        if batch.epoch < writer.epoch {
            return Judgement::Fenced;
        }
        match writer.batches.get(usize::from(batch.sequence)) {
            Some(offset) => Judgement::Repeat(*offset),
            // A writer that is not known may begin anywhere.
            None if writer.batches.is_empty() || usize::from(batch.sequence) == writer.batches.len() => Judgement::Next,
            None => Judgement::Gap,
        }
    }
}
