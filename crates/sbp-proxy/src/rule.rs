//! Rules: which faults happen to which frames.

mod text;

use std::time::Duration;

use sbp_frame::OpCode;

pub use text::RuleTextError;

use crate::{Direction, Hook, Kind, Seen};

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before the frame; with [`Rule::at_byte`], before that byte.
    Before,
    /// After this many bytes of the frame.
    Inside(u64),
    /// After the frame.
    After,
}

/// What happens to a frame.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// The frame is not passed on. Its sender is not told, as on a real network: a client that waits for an answer
    /// waits until its own deadline.
    Drop,
    /// The frame is passed on after this delay, and what comes behind it in its direction not before it.
    Delay(Duration),
    /// The frame is passed on twice.
    Duplicate,
    /// The frame is held back until this many later frames of its direction have overtaken it, but at most for 100 ms.
    /// Only for answers: the order of requests has a meaning, and so has that of the frames of one answer.
    Reorder(u32),
    /// The connection ends, in both directions.
    Cut(Cut),
    /// A hook decides. Until then the frame waits, and so does everything behind it in its direction.
    Hold(Hook),
}

/// Which of the matching frames the fault happens to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    All,
    Nth(u64),
    Every(u64),
    AtByte(u64),
    Chance(f64),
}

/// A fault, and the frames that it happens to: all frames, unless conditions are added.
///
/// A rule is built by calls, or read from text as on the command line: see [`Rule::from_str`](std::str::FromStr).
///
/// ```
/// use sbp_frame::OpCode;
/// use sbp_proxy::{Cut, Fault, Rule};
///
/// let rule = Rule::new(Fault::Cut(Cut::Inside(20))).opcode(OpCode::APPEND).requests().every(100).times(5);
/// assert_eq!(rule.to_string(), "cut=20 request APPEND every=100 times=5");
/// assert_eq!(rule.to_string().parse::<Rule>()?.to_string(), rule.to_string());
/// # Ok::<(), sbp_proxy::RuleTextError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rule {
    pub(crate) fault: Fault,
    kind: Option<Kind>,
    direction: Option<Direction>,
    opcode: Option<OpCode>,
    connection: Option<u64>,
    pub(crate) pick: Pick,
    pub(crate) times: Option<u64>,
}

impl Rule {
    /// A rule for all frames.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self {
            fault,
            kind: None,
            direction: None,
            opcode: None,
            connection: None,
            pick: Pick::All,
            times: None,
        }
    }

    /// The same conditions with another fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// Only frames of this operation.
    #[must_use]
    pub fn opcode(mut self, opcode: OpCode) -> Self {
        self.opcode = Some(opcode);
        self
    }

    /// Only requests, whoever sends them.
    #[must_use]
    pub fn requests(mut self) -> Self {
        self.kind = Some(Kind::Request);
        self
    }

    /// Only answers, whoever sends them.
    #[must_use]
    pub fn answers(mut self) -> Self {
        self.kind = Some(Kind::Answer);
        self
    }

    /// Only frames that go this way.
    #[must_use]
    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }

    /// Only frames of the connection with this number; connections are counted from 1 in the order of their arrival.
    #[must_use]
    pub fn connection(mut self, number: u64) -> Self {
        self.connection = Some(number);
        self
    }

    /// Only the `n`-th matching frame, counted from 1 over all connections.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.pick = Pick::Nth(n.max(1));
        self
    }

    /// Only each `n`-th matching frame, counted over all connections.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.pick = Pick::Every(n.max(1));
        self
    }

    /// Only the frame that contains this byte, counted from 0 in its direction of its connection.
    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.pick = Pick::AtByte(byte);
        self
    }

    /// Only with this probability: 0 is never, 1 is always.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.pick = Pick::Chance(probability);
        self
    }

    /// At most this many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether the frame matches the conditions, without counts and probability.
    pub(crate) fn is_about(&self, seen: &Seen) -> bool {
        fn fits<T: PartialEq>(asked: Option<T>, is: T) -> bool {
            asked.is_none_or(|asked| asked == is)
        }
        let can_be_reordered = seen.kind == Kind::Answer || !matches!(self.fault, Fault::Reorder(_));
        can_be_reordered
            && fits(self.kind, seen.kind)
            && fits(self.direction, seen.direction)
            && fits(self.opcode, seen.opcode)
            && fits(self.connection, seen.connection)
    }
}
