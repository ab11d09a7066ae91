//! A whole frame.

use bytes::{Buf, Bytes, BytesMut};

use crate::{CallId, Flags, FrameError, OpCode, PRELUDE_LENGTH, Payload, Prelude, checksum};

/// A received frame: lengths, magic and checksum have been judged, the header's content has not.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The operation, possibly an unknown one.
    pub opcode: OpCode,
    /// The flags, unknown bits dropped.
    pub flags: Flags,
    /// The request's number.
    pub call_id: CallId,
    /// Encoding of `header`; 1 is FlatBuffers.
    pub format: u8,
    /// The extended header.
    pub header: Bytes,
    /// The payload, chunks unjoined.
    pub payload: Payload,
}

impl Frame {
    /// Takes the first frame out of `buffer`, as views of it; `None` while it is incomplete.
    ///
    /// This is the plain decoder for tools and tests, which want any deviation told. A session judges differently: it
    /// answers or skips where that is possible, and it reads large payloads piece by piece.
    ///
    /// # Errors
    /// Everything [`FrameError`] knows. The buffer is then of no further use.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(length) = buffer.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        if !Prelude::is_possible_length(length) {
            return Err(FrameError::Length(length));
        }
        let Some(prelude) = buffer.first_chunk::<PRELUDE_LENGTH>().map(Prelude::parse) else {
            return Ok(None);
        };
        if prelude.magic != crate::MAGIC {
            return Err(FrameError::Magic(prelude.magic));
        }
        let over_frame = FrameError::HeaderOverFrame {
            header: prelude.header_length,
            frame: prelude.frame_length,
        };
        let payload_length = prelude.payload_length().ok_or(over_frame)?;
        let call_id = CallId::from_raw(prelude.raw_call_id).ok_or(FrameError::CallId(prelude.raw_call_id))?;
        if (buffer.len() as u64) < prelude.wire_length() {
            return Ok(None);
        }
        buffer.advance(PRELUDE_LENGTH);
        let header = buffer.split_to(prelude.header_length as usize).freeze();
        let payload = buffer.split_to(payload_length as usize).freeze();
        let stated = buffer.get_u32();
        let found = checksum(&payload);
        // Writers put 0 behind an empty payload; another value is harmless and accepted.
        if stated != found && !payload.is_empty() {
            return Err(FrameError::Checksum { stated, found });
        }
        Ok(Some(Self {
            opcode: prelude.opcode,
            flags: Flags::from_bits_truncate(prelude.flags),
            call_id,
            format: prelude.format,
            header,
            payload: payload.into(),
        }))
    }
}
