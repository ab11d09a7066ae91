//! Operation codes: numbers with names.

use std::fmt;

/// The *Operation Code* of a frame. An unknown number is kept, so that it can be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal;)+) => {
        impl OpCode {
            $($(#[doc = $doc])+ pub const $name: Self = Self($number);)+

            /// Every code in the specification's table, in its order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code's name in the specification; `None` for a number that is not in its table.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// Measures a round trip; either side may send it.
    PING = 0x0001;
    /// Announces that the sender starts no more requests on this connection.
    GOAWAY = 0x0002;
    /// Begins a connection with role and features, and keeps it alive.
    HEARTBEAT = 0x0003;
    /// Asks a placement driver for an id that no server had before.
    ALLOCATE_ID = 0x0004;
    /// Appends record batches.
    APPEND = 0x1001;
    /// Fetches record batches, and can wait for them (long poll).
    FETCH = 0x1002;
    /// Lists the ranges of streams or of a range server.
    LIST_RANGES = 0x2001;
    /// Seals ranges.
    SEAL_RANGES = 0x2002;
    /// Tells a range server which ranges it holds.
    SYNC_RANGES = 0x2003;
    /// Creates the range after a sealed one.
    CREATE_RANGE = 0x2004;
    /// Describes ranges, with their ends.
    DESCRIBE_RANGES = 0x2005;
    /// Creates streams.
    CREATE_STREAMS = 0x3001;
    /// Deletes streams.
    DELETE_STREAMS = 0x3002;
    /// Changes settings of streams.
    UPDATE_STREAMS = 0x3003;
    /// Describes streams by id, by name, or all of them.
    DESCRIBE_STREAMS = 0x3004;
    /// Moves the start of streams forward.
    TRIM_STREAMS = 0x3005;
    /// A range server's report to its placement driver.
    REPORT_METRICS = 0x4001;
    /// Asks for the members of the placement driver's cluster.
    DESCRIBE_PD_CLUSTER = 0x4002;
}

impl OpCode {
    /// Whether the specification's table has this number.
    pub const fn is_known(self) -> bool {
        self.name().is_some()
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "opcode {:#06x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_specification_s() {
        let numbers: Vec<u16> = OpCode::ALL.iter().map(|code| code.0).collect();
        assert_eq!(
            numbers,
            [
                0x0001, 0x0002, 0x0003, 0x0004, 0x1001, 0x1002, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x3001, 0x3002,
                0x3003, 0x3004, 0x3005, 0x4001, 0x4002
            ]
        );
        assert!(OpCode::ALL.iter().all(|code| code.is_known()));
    }

    #[test]
    fn unknown_numbers_are_kept_and_shown() {
        assert!(!OpCode(0).is_known());
        assert_eq!(OpCode(0x7777).to_string(), "opcode 0x7777");
        assert_eq!(OpCode(0x2004).to_string(), "CREATE_RANGE");
    }
}
