//! Rules as text, for the command line and for users who prefer it to the builder.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sbp_frame::OpCode;

use super::{Cut, Fault, Pick, Rule};
use crate::{Direction, Kind};

/// A text is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} {problem}")]
pub struct RuleTextError {
    word: String,
    problem: &'static str,
}

impl RuleTextError {
    fn new(word: &str, problem: &'static str) -> Self {
        Self {
            word: word.to_owned(),
            problem,
        }
    }
}

const FAULTS: &str = "is no fault: write drop, delay=TIME, duplicate, reorder, reorder=FRAMES, cut, cut=BYTES or \
                      cut-after, and then which frames";
const CONDITIONS: &str = "is no condition: write request, answer, to-server, to-client, an operation such as APPEND or \
                          0x1001, connection=N, nth=N, every=N, byte=N, probability=P or times=N";
const NUMBER: &str = "needs a whole number above 0 behind the =";
const POSITION: &str = "needs a whole number behind the =";
const TIME: &str = "needs a time behind the =, such as 20ms or 1.5s";
const CHANCE: &str = "needs a number from 0 to 1 behind the =";

/// A fault and its conditions as words: `drop answer APPEND nth=3`, `delay=20ms to-client`, `cut=100 request FETCH`.
impl FromStr for Rule {
    type Err = RuleTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let mut rule = Self::new(fault(first)?);
        for word in words {
            rule = condition(rule, word)?;
        }
        Ok(rule)
    }
}

fn fault(word: &str) -> Result<Fault, RuleTextError> {
    let wrong = |problem| RuleTextError::new(word, problem);
    match word.split_once('=') {
        None => match word {
            "drop" => Ok(Fault::Drop),
            "duplicate" => Ok(Fault::Duplicate),
            "reorder" => Ok(Fault::Reorder(1)),
            "cut" => Ok(Fault::Cut(Cut::Before)),
            "cut-after" => Ok(Fault::Cut(Cut::After)),
            "delay" => Err(wrong("needs a time: write delay=20ms")),
            _ => Err(wrong(FAULTS)),
        },
        Some(("delay", time)) => parse_time(time).map(Fault::Delay).ok_or_else(|| wrong(TIME)),
        Some(("reorder", frames)) => match frames.parse() {
            Ok(frames) if frames > 0 => Ok(Fault::Reorder(frames)),
            _ => Err(wrong(NUMBER)),
        },
        Some(("cut", bytes)) => match bytes.parse() {
            Ok(bytes) => Ok(Fault::Cut(Cut::Inside(bytes))),
            Err(_) => Err(wrong(POSITION)),
        },
        Some(_) => Err(wrong(FAULTS)),
    }
}

fn condition(rule: Rule, word: &str) -> Result<Rule, RuleTextError> {
    let wrong = |problem| RuleTextError::new(word, problem);
    let Some((name, value)) = word.split_once('=') else {
        return match word {
            "request" => Ok(rule.requests()),
            "answer" => Ok(rule.answers()),
            "to-server" => Ok(rule.direction(Direction::ToServer)),
            "to-client" => Ok(rule.direction(Direction::ToClient)),
            _ => match parse_opcode(word) {
                Some(opcode) => Ok(rule.opcode(opcode)),
                None => Err(wrong(CONDITIONS)),
            },
        };
    };
    let number = || match value.parse::<u64>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(wrong(NUMBER)),
    };
    match name {
        "connection" => Ok(rule.connection(number()?)),
        "nth" => Ok(rule.nth(number()?)),
        "every" => Ok(rule.every(number()?)),
        "times" => Ok(rule.times(number()?)),
        "byte" => match value.parse() {
            Ok(byte) => Ok(rule.at_byte(byte)),
            Err(_) => Err(wrong(POSITION)),
        },
        "probability" => match value.parse() {
            Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(rule.probability(chance)),
            _ => Err(wrong(CHANCE)),
        },
        _ => Err(wrong(CONDITIONS)),
    }
}

/// An operation by its name in the specification or by its number.
fn parse_opcode(word: &str) -> Option<OpCode> {
    let named = OpCode::ALL.iter().find(|code| code.name() == Some(word)).copied();
    named.or_else(|| {
        let number = u16::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
        Some(OpCode(number))
    })
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, second_parts) = match text.strip_suffix("ms") {
        Some(number) => (number, 1_000.0),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? / second_parts;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The text that is read as this rule. A hook has no text and is shown as `hold`.
impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Drop => formatter.write_str("drop"),
            Fault::Delay(time) => write!(formatter, "delay={}ms", time.as_secs_f64() * 1_000.0),
            Fault::Duplicate => formatter.write_str("duplicate"),
            Fault::Reorder(1) => formatter.write_str("reorder"),
            Fault::Reorder(frames) => write!(formatter, "reorder={frames}"),
            Fault::Cut(Cut::Before) => formatter.write_str("cut"),
            Fault::Cut(Cut::Inside(bytes)) => write!(formatter, "cut={bytes}"),
            Fault::Cut(Cut::After) => formatter.write_str("cut-after"),
            Fault::Hold(_) => formatter.write_str("hold"),
        }?;
        let words = [self.kind.map(Kind::name), self.direction.map(Direction::name)];
        for word in words.into_iter().flatten() {
            write!(formatter, " {word}")?;
        }
        match self.opcode {
            Some(opcode) if opcode.is_known() => write!(formatter, " {opcode}")?,
            Some(opcode) => write!(formatter, " {:#06x}", opcode.0)?,
            None => {}
        }
        if let Some(number) = self.connection {
            write!(formatter, " connection={number}")?;
        }
        match self.pick {
            Pick::All => {}
            Pick::Nth(n) => write!(formatter, " nth={n}")?,
            Pick::Every(n) => write!(formatter, " every={n}")?,
            Pick::AtByte(byte) => write!(formatter, " byte={byte}")?,
            Pick::Chance(chance) => write!(formatter, " probability={chance}")?,
        }
        match self.times {
            Some(times) => write!(formatter, " times={times}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "drop",
            "drop answer APPEND nth=3",
            "delay=20ms to-client",
            "delay=1500ms request to-server 0x7777 probability=0.25",
            "duplicate request APPEND every=7 times=2",
            "reorder answer",
            "reorder=4 answer FETCH",
            "cut to-server byte=0",
            "cut=0 connection=2",
            "cut-after answer DESCRIBE_PD_CLUSTER times=1",
        ] {
            assert_eq!(text.parse::<Rule>().map(|rule| rule.to_string()), Ok(text.to_owned()));
        }
        let spread = "  delay=1.5s \t APPEND  ".parse::<Rule>().unwrap();
        assert_eq!(spread.to_string(), "delay=1500ms APPEND");
    }

    #[test]
    fn what_makes_no_sense_is_explained() {
        for (text, word, says) in [
            ("", "", "is no fault"),
            ("dorp", "dorp", "is no fault"),
            ("delay", "delay", "delay=20ms"),
            ("delay=20", "delay=20", "a time"),
            ("delay=-1s", "delay=-1s", "a time"),
            ("reorder=0", "reorder=0", "above 0"),
            ("cut=x", "cut=x", "whole number"),
            ("hold", "hold", "is no fault"),
            ("drop append", "append", "is no condition"),
            ("drop APPEND nth=0", "nth=0", "above 0"),
            ("drop probability=2", "probability=2", "from 0 to 1"),
            ("drop byte=-1", "byte=-1", "whole number"),
            ("drop often=2", "often=2", "is no condition"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{word:?} ")), "{text}: {error}");
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
