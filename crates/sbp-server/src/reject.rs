//! The answer to a request that the session has refused.

use sbp_messages::{ErrorCode, Status};
use sbp_session::RejectReason;

/// The status for a refused request.
pub(crate) fn reject_status(reason: RejectReason) -> Status {
    let code = match reason {
        RejectReason::HeaderFormat(_) => ErrorCode::UNSUPPORTED_VERSION,
        RejectReason::UnknownOpCode => ErrorCode::UNKNOWN_OPERATION,
        RejectReason::NotServed => ErrorCode::UNSUPPORTED_OPERATION,
        RejectReason::GoingAway => ErrorCode::SHUTTING_DOWN,
        RejectReason::NotAuthenticated => ErrorCode::UNAUTHORIZED,
        _ => ErrorCode::INVALID_REQUEST,
    };
    Status::error(code, reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_code() {
        let cases = [
            (RejectReason::CallIdTopBit, ErrorCode::INVALID_REQUEST),
            (RejectReason::HeaderFormat(3), ErrorCode::UNSUPPORTED_VERSION),
            (RejectReason::HeaderMissing, ErrorCode::INVALID_REQUEST),
            (
                RejectReason::HeaderTooLarge { length: 2, limit: 1 },
                ErrorCode::INVALID_REQUEST,
            ),
            (RejectReason::UnknownOpCode, ErrorCode::UNKNOWN_OPERATION),
            (RejectReason::NotServed, ErrorCode::UNSUPPORTED_OPERATION),
            (RejectReason::GoingAway, ErrorCode::SHUTTING_DOWN),
            (RejectReason::NotAuthenticated, ErrorCode::UNAUTHORIZED),
        ];
        for (reason, code) in cases {
            assert_eq!(reject_status(reason).code, code, "{reason:?}");
        }
    }
}
