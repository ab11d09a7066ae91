//! The first 16 bytes of a frame: the only place with byte positions.

use crate::{FrameTooLarge, OpCode};

/// Bytes in front of the extended header.
pub const PRELUDE_LENGTH: usize = 16;
/// The *Magic* byte of every frame.
pub const MAGIC: u8 = 23;
/// The only header format there is: a FlatBuffers root without size prefix and file identifier.
pub const FORMAT_FLATBUFFERS: u8 = 1;
/// The smallest *Frame Length*: neither header nor payload.
pub const MIN_FRAME_LENGTH: u32 = 16;
/// The largest *Frame Length*: 16 MiB.
pub const MAX_FRAME_LENGTH: u32 = 16 * 1024 * 1024;
/// The largest number that fits into *Header Length*, which has 24 bits. Sessions allow far less.
pub const MAX_HEADER_LENGTH: u32 = (1 << 24) - 1;

/// What *Frame Length* counts beside header and payload: the prelude without itself, and the checksum.
const FIXED_LENGTH: u32 = 16;

/// The fixed part of a frame, fields in wire order and as received: nothing in it has been judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prelude {
    /// Bytes that follow the *Frame Length* field: 12 + header + payload + 4.
    pub frame_length: u32,
    /// [`MAGIC`] in every valid frame.
    pub magic: u8,
    /// The operation.
    pub opcode: OpCode,
    /// The flag byte with all its bits; see [`crate::Flags::from_bits_truncate`].
    pub flags: u8,
    /// The *Stream Identifier* with all its 32 bits; see [`crate::CallId::from_raw`].
    pub raw_call_id: u32,
    /// Encoding of the extended header; [`FORMAT_FLATBUFFERS`] in every valid frame but PING and GOAWAY.
    pub format: u8,
    /// Bytes of the extended header.
    pub header_length: u32,
}

impl Prelude {
    /// A prelude for a frame to be sent, with lengths from the sizes of header and payload.
    ///
    /// # Errors
    /// [`FrameTooLarge`] when the lengths do not fit into a frame.
    pub fn new(
        opcode: OpCode,
        flags: u8,
        raw_call_id: u32,
        format: u8,
        header: usize,
        payload: usize,
    ) -> Result<Self, FrameTooLarge> {
        let too_large = FrameTooLarge { header, payload };
        let header_length = u32::try_from(header).map_err(|_| too_large)?;
        let frame_length = header
            .checked_add(payload)
            .and_then(|body| u32::try_from(body).ok())
            .and_then(|body| body.checked_add(FIXED_LENGTH))
            .filter(|length| *length <= MAX_FRAME_LENGTH && header_length <= MAX_HEADER_LENGTH)
            .ok_or(too_large)?;
        Ok(Self {
            frame_length,
            magic: MAGIC,
            opcode,
            flags,
            raw_call_id,
            format,
            header_length,
        })
    }

    /// Reads the fields without checking them.
    pub fn parse(bytes: &[u8; PRELUDE_LENGTH]) -> Self {
        let [l0, l1, l2, l3, magic, o0, o1, flags, c0, c1, c2, c3, format, h0, h1, h2] = *bytes;
        Self {
            frame_length: u32::from_be_bytes([l0, l1, l2, l3]),
            magic,
            opcode: OpCode(u16::from_be_bytes([o0, o1])),
            flags,
            raw_call_id: u32::from_be_bytes([c0, c1, c2, c3]),
            format,
            header_length: u32::from_be_bytes([0, h0, h1, h2]),
        }
    }

    /// The 16 bytes of this prelude. A header length of more than 24 bits loses its top byte; [`Prelude::new`] allows
    /// none.
    pub fn to_bytes(&self) -> [u8; PRELUDE_LENGTH] {
        let [l0, l1, l2, l3] = self.frame_length.to_be_bytes();
        let [o0, o1] = self.opcode.0.to_be_bytes();
        let [c0, c1, c2, c3] = self.raw_call_id.to_be_bytes();
        let [_, h0, h1, h2] = self.header_length.to_be_bytes();
        [
            l0,
            l1,
            l2,
            l3,
            self.magic,
            o0,
            o1,
            self.flags,
            c0,
            c1,
            c2,
            c3,
            self.format,
            h0,
            h1,
            h2,
        ]
    }

    /// Whether *Frame Length* is possible. If not, the next frame cannot be found.
    pub const fn has_possible_length(&self) -> bool {
        Self::is_possible_length(self.frame_length)
    }

    /// Whether a frame can have this *Frame Length*, which its first four bytes tell.
    pub const fn is_possible_length(frame_length: u32) -> bool {
        MIN_FRAME_LENGTH <= frame_length && frame_length <= MAX_FRAME_LENGTH
    }

    /// Bytes of the payload; `None` if the header exceeds the frame.
    pub const fn payload_length(&self) -> Option<u32> {
        match self.frame_length.checked_sub(FIXED_LENGTH) {
            Some(body) => body.checked_sub(self.header_length),
            None => None,
        }
    }

    /// All bytes of the frame on the wire, its length field included.
    pub const fn wire_length(&self) -> u64 {
        self.frame_length as u64 + 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let prelude = Prelude {
            frame_length: 0x0102_0304,
            magic: MAGIC,
            opcode: OpCode(0x1002),
            flags: 0x03,
            raw_call_id: 0x7a7b_7c7d,
            format: 1,
            header_length: 0x00a1_a2a3,
        };
        let bytes = [
            1, 2, 3, 4, 23, 0x10, 0x02, 3, 0x7a, 0x7b, 0x7c, 0x7d, 1, 0xa1, 0xa2, 0xa3,
        ];
        assert_eq!(prelude.to_bytes(), bytes);
        assert_eq!(Prelude::parse(&bytes), prelude);
    }

    #[test]
    fn lengths_are_counted_as_on_the_wire() {
        let prelude = Prelude::new(OpCode::APPEND, 0, 1, FORMAT_FLATBUFFERS, 40, 100).unwrap();
        assert_eq!(prelude.frame_length, 12 + 40 + 100 + 4);
        assert_eq!(prelude.payload_length(), Some(100));
        assert_eq!(prelude.wire_length(), 160);
    }

    #[test]
    fn a_frame_ends_at_sixteen_mebibytes() {
        let most = 16 * 1024 * 1024 - 16;
        assert!(
            Prelude::new(OpCode::APPEND, 0, 1, 1, 0, most)
                .unwrap()
                .has_possible_length()
        );
        assert!(Prelude::new(OpCode::APPEND, 0, 1, 1, 1, most).is_err());
        assert!(Prelude::new(OpCode::APPEND, 0, 1, 1, usize::MAX, usize::MAX).is_err());
    }

    #[test]
    fn a_header_over_the_frame_has_no_payload_length() {
        let mut prelude = Prelude::new(OpCode::APPEND, 0, 1, 1, 8, 0).unwrap();
        prelude.header_length = 9;
        assert_eq!(prelude.payload_length(), None);
        prelude.frame_length = 3;
        assert_eq!(prelude.payload_length(), None);
    }
}
