//! What the proxy knows about a frame.

use std::fmt;

use sbp_frame::{Flags, OpCode, Prelude};

/// The direction of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the target.
    ToServer,
    /// From the target to the client.
    ToClient,
}

impl Direction {
    /// The direction's name in the text of a rule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to-server",
            Self::ToClient => "to-client",
        }
    }
}

/// Whether a frame is a request or an answer. Either side may send both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The RESPONSE flag is not set; GOAWAY counts as a request.
    Request,
    /// The RESPONSE flag is set.
    Answer,
}

impl Kind {
    /// The kind's name in the text of a rule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
        }
    }
}

/// What was done with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// It was passed on at once.
    Passed,
    /// It was not passed on.
    Dropped,
    /// It was passed on later, and so was what came behind it.
    Delayed,
    /// It was passed on twice.
    Duplicated,
    /// Later answers overtook it.
    Reordered,
    /// The connection was cut at it.
    Cut,
    /// A hook was asked to decide about it.
    Held,
}

impl Action {
    /// The action's name.
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

/// A frame as the proxy sees it: its first sixteen bytes and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The number of the connection; connections are counted from 1 in the order of their arrival.
    pub connection: u64,
    /// Which way the frame goes.
    pub direction: Direction,
    /// Whether it is a request or an answer.
    pub kind: Kind,
    /// The operation.
    pub opcode: OpCode,
    /// The known flags.
    pub flags: Flags,
    /// The *Stream Identifier* as received, which ties an answer to its request.
    pub call_id: u32,
    /// The frame's number in its direction on its connection, from 1.
    pub number: u64,
    /// The position of its first byte in its direction on its connection, from 0.
    pub start: u64,
    /// Its bytes on the wire.
    pub length: u64,
}

impl Seen {
    /// Reads the prelude of the frame at this position.
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
