//! Frames as bytes.

use bytes::BytesMut;
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, Frame, FrameHead, PayloadPart, PushFrame, WriteQueue};
use sbp_messages::{Encoder, ErrorCode, Message, SystemErrorResponse};

/// The bytes of a frame.
pub fn frame_bytes(head: FrameHead, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    queue.push_frame(head, header, &[PayloadPart::Copy(payload)]).unwrap();
    let mut bytes = Vec::with_capacity(queue.len());
    while !queue.is_empty() {
        let mut slices = [std::io::IoSlice::new(&[]); 8];
        let filled = queue.slices(&mut slices);
        let before = bytes.len();
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
        queue.advance(bytes.len() - before);
    }
    bytes
}

/// The header of a message.
pub fn header<M: Message>(message: &M) -> BytesMut {
    let mut header = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut header);
    header
}

/// A frame that answers `to`, and is the last one or is not.
pub fn answer_bytes<M: Message>(to: &Frame, message: &M, payload: &[u8], end: bool) -> Vec<u8> {
    let flags = match end {
        true => Flags::RESPONSE | Flags::END,
        false => Flags::RESPONSE,
    };
    let head = FrameHead {
        opcode: to.opcode,
        flags,
        raw_call_id: to.call_id.raw(),
        format: FORMAT_FLATBUFFERS,
    };
    frame_bytes(head, &header(message), payload)
}

/// What a frame that ends a call in a system error says; `None` for any other.
pub fn system_error(frame: &Frame) -> Option<ErrorCode> {
    let response = frame
        .flags
        .contains(Flags::SYSTEM_ERROR)
        .then(|| SystemErrorResponse::decode(&frame.header))?;
    Some(response.unwrap().status.code)
}
