//! A whole frame.

use bytes::{Buf, Bytes, BytesMut};

use crate::{CallId, Flags, FrameError, OpCode, PRELUDE_LENGTH, Payload, Prelude, checksum};

/// A received frame. Lengths, magic and checksum have been checked, the header's content has not.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The operation, possibly an unknown one.
    pub opcode: OpCode,
    /// The flags, without unknown bits.
    pub flags: Flags,
    /// The id of the request.
    pub call_id: CallId,
    /// Encoding of `header`; 1 is FlatBuffers.
    pub format: u8,
    /// The extended header.
    pub header: Bytes,
    /// The payload, in the chunks in which it was received.
    pub payload: Payload,
}

impl Frame {
    /// Takes the first frame out of `buffer`, as views of it; `None` while it is incomplete.
    ///
    /// This is the plain decoder for tools and tests, which reports every deviation. A session is more tolerant: it
    /// refuses or skips a frame where that is possible, and reads large payloads piece by piece.
    ///
    /// # Errors
    ///
    /// Any [`FrameError`]. The buffer cannot be used any more then.
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
        // The checksum of an empty payload should be 0; another value does no harm and is accepted.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FORMAT_FLATBUFFERS, FrameHead, PayloadPart, PushFrame, WriteQueue};

    fn encode(opcode: OpCode, header: &[u8], payload: &[u8]) -> BytesMut {
        let mut queue = WriteQueue::new();
        let head = FrameHead {
            opcode,
            flags: Flags::RESPONSE,
            raw_call_id: 77,
            format: FORMAT_FLATBUFFERS,
        };
        queue.push_frame(head, header, &[PayloadPart::Copy(payload)]).unwrap();
        let mut bytes = BytesMut::new();
        while !queue.is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 1];
            queue.slices(&mut slices);
            bytes.extend_from_slice(&slices[0]);
            let count = slices[0].len();
            queue.advance(count);
        }
        bytes
    }

    #[test]
    fn each_deviation_has_its_error() {
        type Change = fn(&mut [u8]);
        let cases: [(Change, FrameError); 6] = [
            (
                |bytes| bytes[..4].copy_from_slice(&15_u32.to_be_bytes()),
                FrameError::Length(15),
            ),
            (|bytes| bytes[0] = 0x47, FrameError::Length(0x4700_0017)),
            (|bytes| bytes[4] = 24, FrameError::Magic(24)),
            (
                |bytes| bytes[15] = 8,
                FrameError::HeaderOverFrame { header: 8, frame: 23 },
            ),
            (|bytes| bytes[8] = 0x80, FrameError::CallId(0x8000_004d)),
            (
                |bytes| bytes[19] = b'e',
                FrameError::Checksum {
                    stated: checksum(b"data"),
                    found: checksum(b"eata"),
                },
            ),
        ];
        for (change, expected) in cases {
            let mut bytes = encode(OpCode::APPEND, b"ask", b"data");
            change(&mut bytes);
            assert_eq!(Frame::decode(&mut bytes).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_checksum_of_nothing_is_not_looked_at() {
        let mut bytes = encode(OpCode::PING, b"", b"");
        bytes[16] = 9;
        assert!(Frame::decode(&mut bytes).unwrap().is_some());
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(header in prop::collection::vec(any::<u8>(), 0..300), payload in prop::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
            let whole = encode(OpCode::FETCH, &header, &payload);
            let mut bytes = BytesMut::from(&whole[..cut.index(whole.len())]);
            prop_assert!(Frame::decode(&mut bytes).unwrap().is_none(), "incomplete");
            bytes.extend_from_slice(&whole[bytes.len()..]);
            let frame = Frame::decode(&mut bytes).unwrap().unwrap();
            prop_assert_eq!(&frame.header[..], &header[..]);
            prop_assert_eq!(&frame.payload.into_contiguous()[..], &payload[..]);
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = Frame::decode(&mut bytes) {}
        }
    }
}
