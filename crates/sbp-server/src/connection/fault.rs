//! Why a request is refused as a whole.

use sbp_messages::DecodeError;

use crate::placement::TokenError;
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

impl From<sbp_messages::Refusal> for Fault {
    fn from(refusal: sbp_messages::Refusal) -> Self {
        Self::Header(refusal.into())
    }
}

impl From<TokenError> for Fault {
    fn from(error: TokenError) -> Self {
        Self::Refused(Refusal::invalid(error.to_string()))
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
