//! HEARTBEAT: the first frame of a connection, and its sign of life.

use bytes::BytesMut;
use sbp_frame::{Frame, OpCode};
use sbp_messages::{ClientRole, Encoder, Feature, HeartbeatRequest, HeartbeatResponse, Message, Token};

use crate::failure::Cause;
use crate::features::{Features, OFFERED};

pub(crate) const OPCODE: OpCode = HeartbeatRequest::OPCODE;

/// The protocol revision spoken here.
const REVISION: i32 = 1;

/// The request, encoded when what it says changes: once, when the server has numbered the connection.
pub(crate) struct Hello {
    request: HeartbeatRequest,
    header: BytesMut,
}

impl Hello {
    pub(crate) fn new(client_id: &str) -> Self {
        let request = HeartbeatRequest {
            client_id: client_id.to_owned(),
            client_role: ClientRole::CLIENT,
            range_server: None,
            protocol_revision: REVISION,
            features: OFFERED.iter().map(|name| Feature::new(name, "1")).collect(),
            connection_id: 0,
            token: Token::default(),
        };
        let mut hello = Self {
            request,
            header: BytesMut::new(),
        };
        hello.encode();
        hello
    }

    /// Says with the next request, and with no other, who the client is.
    pub(super) fn set_token(&mut self, token: Token) {
        self.request.token = token;
        self.encode();
    }

    fn encode(&mut self) {
        self.header.clear();
        self.request.encode(&mut Encoder::new(), &mut self.header);
    }

    pub(crate) fn request(&self) -> &[u8] {
        &self.header
    }

    /// What an answer agrees on; `Err`: it is a refusal, or cannot be read.
    pub(super) fn agreed(&mut self, frame: &Frame) -> Result<Features, Cause> {
        if let Some(cause) = Cause::system_error(frame) {
            return Err(cause);
        }
        match HeartbeatResponse::decode(&frame.header) {
            Ok(answer) if answer.status.is_success() => {
                if self.request.connection_id == 0 && answer.connection_id > 0 {
                    self.request.connection_id = answer.connection_id;
                    self.encode();
                }
                let features = answer.features.iter();
                let pairs = features.map(|one| (one.name.as_str(), one.value.as_str()));
                Ok(Features::from_pairs(pairs))
            }
            Ok(answer) => Err(Cause::refused(&answer.status, 0)),
            Err(error) => Err(Cause::undecodable(frame, &error)),
        }
    }
}
