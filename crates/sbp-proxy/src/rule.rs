//! Which frames meet which fault.

mod text;

use std::time::Duration;

use sbp_frame::OpCode;

pub use text::RuleTextError;

use crate::{Direction, Hook, Kind, Seen};

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// In front of the frame. With [`Rule::at_byte`]: in front of that byte.
    Before,
    /// When this many of the frame's bytes were passed on.
    Inside(u64),
    /// Behind the frame.
    After,
}

/// What happens to a frame.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// It is not passed on. Its sender is not told, as no real network would do it: whoever waits for an answer waits
    /// until its own deadline.
    Drop,
    /// It is passed on this much later, and so is at least what comes behind it in its direction.
    Delay(Duration),
    /// It is passed on twice.
    Duplicate,
    /// This many later frames of its direction overtake it, or those of the next 100 ms. Answers only: requests keep
    /// their order, because it has a meaning, and so do the frames of one answer.
    Reorder(u32),
    /// The connection ends, in both directions.
    Cut(Cut),
    /// A hook decides; until it has, the frame waits, and so does what comes behind it in its direction.
    Hold(Hook),
}

/// Which of the matching frames a rule takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    All,
    Nth(u64),
    Every(u64),
    AtByte(u64),
    Chance(f64),
}

/// A fault, and the frames that it happens to: all of them, until conditions are added.
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

    /// The same frames, and another fault.
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

    /// Only frames of the connection with this number, counted from 1 as they were accepted.
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

    /// Only the frame that holds this byte, counted from 0 in its direction on its connection.
    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.pick = Pick::AtByte(byte);
        self
    }

    /// Only by chance: 0 is never, 1 is always.
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

    /// Whether the frame is of the kind that this rule is about. Numbers and chance come after that.
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
