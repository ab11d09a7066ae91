//! GOAWAY (0x0002): the sender starts nothing more on this connection.

use crate::Status;
use crate::v01::tables;

tables! {
    /// The optional header of a GOAWAY. What was started is told by the frame, not here.
    ///
    /// A header that is absent or unreadable means the default: nobody answers a GOAWAY, so nobody may object to it.
    pub struct GoAway: GoAwayArgs, request of GOAWAY {
        /// Why; success when nothing is wrong.
        pub status: Status,
        /// How long the sender keeps the connection for what was started, in milliseconds; 0: not said.
        pub grace_ms: i32,
    }
}
