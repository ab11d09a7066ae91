//! What the proxy knows about a frame.

use std::fmt;

use sbp_frame::{Flags, OpCode, Prelude};

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the one who connected to the target.
    ToServer,
    /// From the target to the one who connected.
    ToClient,
}

impl Direction {
    /// The word for it in a rule's text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to-server",
            Self::ToClient => "to-client",
        }
    }
}

/// Whether a frame asks or answers. Either side may do both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The RESPONSE flag is not set; GOAWAY counts as a request.
    Request,
    /// The RESPONSE flag is set.
    Answer,
}

impl Kind {
    /// The word for it in a rule's text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
        }
    }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// It went on at once.
    Passed,
    /// It was not passed on.
    Dropped,
    /// It was passed on later, and so was what came behind it.
    Delayed,
    /// It was passed on twice.
    Duplicated,
    /// Later answers overtook it.
    Reordered,
    /// The connection ended with it.
    Cut,
    /// A hook was asked what is to become of it.
    Held,
}

impl Action {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Dropped => "dropped",
            Self::Delayed => "delayed",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Cut => "cut",
            Self::Held => "held",
        }
    }
}

/// A frame as the proxy sees it: its first sixteen bytes and where they stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The connection, counted from 1 as they were accepted.
    pub connection: u64,
    /// Which way the frame goes.
    pub direction: Direction,
    /// Whether it asks or answers.
    pub kind: Kind,
    /// The operation.
    pub opcode: OpCode,
    /// The flags that are known.
    pub flags: Flags,
    /// The *Stream Identifier* as received: what ties answers to their request.
    pub call_id: u32,
    /// The frame's number in its direction on its connection, from 1.
    pub number: u64,
    /// The position of its first byte in its direction on its connection, from 0.
    pub start: u64,
    /// Its bytes on the wire.
    pub length: u64,
}

impl Seen {
    /// What the prelude of a frame at that place tells.
    pub(crate) fn new(connection: u64, direction: Direction, number: u64, start: u64, prelude: &Prelude) -> Self {
        let flags = Flags::from_bits_truncate(prelude.flags);
        Self {
            connection,
            direction,
            kind: if flags.is_response() {
                Kind::Answer
            } else {
                Kind::Request
            },
            opcode: prelude.opcode,
            flags,
            call_id: prelude.raw_call_id,
            number,
            start,
            length: prelude.wire_length(),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "connection {} {} #{} {} {} call {}, {} bytes",
            self.connection,
            self.direction.name(),
            self.number,
            self.kind.name(),
            self.opcode,
            self.call_id,
            self.length
        )
    }
}
