//! The values of the vectors: every scalar takes the next number, as `tests/vectors/values.py` counts them.

use bytes::Bytes;
use sbp_messages::{ErrorCode, Status};
use sbp_types::StreamIdentity;

/// Which fields a vector has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Every field, no two alike.
    All,
    /// Every field, with success for a status.
    Success,
    /// What a peer without extensions writes.
    Plain,
}

impl Case {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "all" => Self::All,
            "success" => Self::Success,
            "plain" => Self::Plain,
            other => panic!("no case is called {other}"),
        }
    }
}

/// Gives fields their numbers. A struct's fields are to be asked for in the order of their ids.
#[derive(Debug)]
pub(crate) struct Count {
    case: Case,
    number: i64,
}

impl Count {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, number: 0 }
    }

    fn next(&mut self) -> i64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn byte(&mut self) -> i8 {
        i8::try_from(self.next() % 100).expect("below 100")
    }

    pub(crate) fn short(&mut self) -> i16 {
        i16::try_from(1_000 + self.next()).expect("messages are short")
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::try_from((1 << 24) + self.next()).expect("messages are short")
    }

    pub(crate) fn long(&mut self) -> i64 {
        (1 << 40) + self.next()
    }

    /// A count, which has the wire's signed numbers.
    pub(crate) fn marks(&mut self) -> u32 {
        self.int().cast_unsigned()
    }

    pub(crate) fn text(&mut self) -> String {
        format!("text {}", self.next())
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        let byte = |count: &mut Self| u8::try_from(count.byte()).expect("below 100");
        Bytes::from(vec![byte(self), byte(self), byte(self)])
    }

    pub(crate) fn identity(&mut self) -> StreamIdentity {
        StreamIdentity(std::array::from_fn(|_| u8::try_from(self.byte()).expect("below 100")))
    }

    pub(crate) fn status(&mut self) -> Status {
        if self.case == Case::Success {
            return Status::success();
        }
        Status {
            code: ErrorCode::NOT_FOUND,
            message: self.text(),
            detail: self.bytes(),
        }
    }

    /// Two of something.
    pub(crate) fn two<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        vec![one(self), one(self)]
    }

    /// A field that a peer without extensions does not write.
    pub(crate) fn extension<T>(&mut self, absent: T, value: impl FnOnce(&mut Self) -> T) -> T {
        if self.case == Case::Plain { absent } else { value(self) }
    }
}
