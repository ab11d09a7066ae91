//! Why a request is refused as a whole.

use sbp_messages::DecodeError;

use crate::refusal::Refusal;

/// Why a whole request is refused, with a system error.
#[derive(Debug)]
pub(crate) enum Fault {
    Header(DecodeError),
    Refused(Refusal),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Header(error)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
