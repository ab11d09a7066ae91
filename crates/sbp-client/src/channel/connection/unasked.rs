//! Requests of a server, which a client serves none of. PING is answered by the session.

use bytes::BytesMut;
use sbp_frame::OpCode;
use sbp_messages::{Encoder, ErrorCode, Status, SystemErrorResponse};
use sbp_session::{RejectReason, Session};

/// Answers a request that nobody serves here, so that who sent it does not wait.
pub(super) fn refuse(session: &mut Session, raw_call_id: u32, opcode: OpCode, reason: RejectReason) {
    let status = Status::error(code(reason), reason.to_string());
    let mut header = BytesMut::new();
    SystemErrorResponse { status }.encode(&mut Encoder::new(), &mut header);
    session.send_system_error(raw_call_id, opcode, &header);
}

fn code(reason: RejectReason) -> ErrorCode {
    match reason {
        RejectReason::NotServed => ErrorCode::UNSUPPORTED_OPERATION,
        RejectReason::HeaderFormat(_) => ErrorCode::UNSUPPORTED_VERSION,
        RejectReason::UnknownOpCode => ErrorCode::UNKNOWN_OPERATION,
        RejectReason::GoingAway => ErrorCode::SHUTTING_DOWN,
        _ => ErrorCode::INVALID_REQUEST,
    }
}
