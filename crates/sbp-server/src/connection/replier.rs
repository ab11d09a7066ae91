//! Encodes answers and gives them to the session.

use bytes::BytesMut;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_messages::{Encoder, ErrorCode, Message, Status, SystemErrorResponse};
use sbp_session::{SendError, Session};

use crate::access::Presence;
use crate::refusal::Refusal;

/// Encodes answers, with buffers that are reused.
#[derive(Debug, Default)]
pub(crate) struct Replier {
    encoder: Encoder,
    header: BytesMut,
    /// The peer's share of its name's quota; `None`: it has none.
    pub(super) presence: Option<Presence>,
}

impl Replier {
    /// Counts a request that begins. Its answer ends it.
    pub(crate) fn begin_call(&mut self) -> Result<(), Refusal> {
        self.presence.as_mut().map_or(Ok(()), Presence::begin_call)
    }

    fn end_call(&mut self) {
        if let Some(presence) = &mut self.presence {
            presence.end_call();
        }
    }

    /// Frees the buffers: no answer is due soon.
    pub(crate) fn shrink(&mut self) {
        (self.encoder, self.header) = Default::default();
    }

    /// Sends the only or last frame of an answer.
    pub(crate) fn finish<M: Message>(&mut self, session: &mut Session, call: CallId, message: &M) {
        self.send(session, call, message, true, &[]);
    }

    /// Sends one frame of an answer; with `end` it is the last one.
    pub(crate) fn send<M: Message>(
        &mut self,
        session: &mut Session,
        call: CallId,
        message: &M,
        end: bool,
        payload: &[PayloadPart<'_>],
    ) {
        self.header.clear();
        message.encode(&mut self.encoder, &mut self.header);
        match session.send_response(call, M::OPCODE, end, &self.header, payload) {
            // After an error the connection is closed, or the session has ended the call: the answer is no longer wanted.
            Ok(()) | Err(SendError::Closed | SendError::UnknownCall(_)) => {
                if end {
                    self.end_call();
                }
            }
            Err(error) => {
                // Handlers split their answers, so this does not happen. If it does, the call must still end.
                tracing::error!(%error, opcode = %M::OPCODE, "an answer could not be sent");
                let message = format!("the answer could not be sent: {error}");
                let status = Status::error(ErrorCode::RS_INTERNAL_SERVER_ERROR, message);
                self.refuse(session, call.raw(), M::OPCODE, status);
            }
        }
    }

    /// Ends a call that was not understood or not started, with a system error.
    pub(crate) fn refuse(
        &mut self,
        session: &mut Session,
        raw_call_id: u32,
        opcode: OpCode,
        status: impl Into<Status>,
    ) {
        self.header.clear();
        SystemErrorResponse { status: status.into() }.encode(&mut self.encoder, &mut self.header);
        session.send_system_error(raw_call_id, opcode, &self.header);
        self.end_call();
    }

    /// The bytes of a message that the session sends by itself.
    pub(crate) fn encode<M: Message>(&mut self, message: &M) -> &[u8] {
        self.header.clear();
        message.encode(&mut self.encoder, &mut self.header);
        &self.header
    }
}
