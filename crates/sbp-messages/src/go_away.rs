//! GOAWAY (0x0002): the sender starts no more requests on this connection.

use crate::Status;
use crate::v01::tables;

tables! {
    /// The optional header of a GOAWAY. Which requests were started is in the frame, not here.
    ///
    /// An absent or unreadable header counts as the default, because a GOAWAY has no answer with which it could be
    /// refused.
    pub struct GoAway: GoAwayArgs, request of GOAWAY {
        /// The reason; success if there is no fault.
        pub status: Status,
        /// How long the sender keeps the connection for requests in flight, in milliseconds; 0: not stated.
        pub grace_ms: i32,
    }
}
