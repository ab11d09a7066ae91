//! Frames for a queue of bytes.

use std::mem;

use bytes::Bytes;
use sbp_wire::{Checksum, SHARE_FROM, WHOLE_UP_TO, WriteQueue};

use crate::{Flags, FrameTooLarge, OpCode, Prelude};

/// The fields of a frame to be sent that do not follow from its lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// The operation.
    pub opcode: OpCode,
    /// The flags.
    pub flags: Flags,
    /// The *Stream Identifier*: a CallId, or the invalid number of a request that is being refused.
    pub raw_call_id: u32,
    /// Encoding of the header.
    pub format: u8,
}

/// A part of a payload to be sent.
#[derive(Debug, Clone)]
pub enum PayloadPart<'a> {
    /// Bytes that are copied.
    Copy(&'a [u8]),
    /// Bytes that are kept by reference until they are written, if there are at least [`SHARE_FROM`].
    Share(Bytes),
}

impl PayloadPart<'_> {
    /// The part's bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Copy(bytes) => bytes,
            Self::Share(bytes) => bytes,
        }
    }
}

/// What a queue of bytes has for frames.
pub trait PushFrame {
    /// Appends a frame and returns its length on the wire.
    ///
    /// # Errors
    ///
    /// [`FrameTooLarge`]; nothing was appended then.
    fn push_frame(
        &mut self,
        head: FrameHead,
        header: &[u8],
        payload: &[PayloadPart<'_>],
    ) -> Result<usize, FrameTooLarge>;
}

impl PushFrame for WriteQueue {
    fn push_frame(
        &mut self,
        head: FrameHead,
        header: &[u8],
        payload: &[PayloadPart<'_>],
    ) -> Result<usize, FrameTooLarge> {
        let payload_length = payload
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.as_slice().len()));
        let prelude = Prelude::new(
            head.opcode,
            head.flags.bits(),
            head.raw_call_id,
            head.format,
            header.len(),
            payload_length,
        )?;
        let total = usize::try_from(prelude.wire_length()).unwrap_or(usize::MAX);
        if total <= WHOLE_UP_TO {
            self.push_whole(total, |block| {
                block.extend_from_slice(&prelude.to_bytes());
                block.extend_from_slice(header);
                let mut checksum = Checksum::new();
                for part in payload {
                    checksum.update(part.as_slice());
                    block.extend_from_slice(part.as_slice());
                }
                block.extend_from_slice(&checksum.finish().to_be_bytes());
            });
            return Ok(total);
        }
        self.push(&prelude.to_bytes());
        self.push(header);
        let mut checksum = Checksum::new();
        let mut shares = false;
        for part in payload {
            match part {
                PayloadPart::Share(bytes) if bytes.len() >= SHARE_FROM => {
                    self.push_summed(mem::take(&mut checksum), bytes.clone());
                    shares = true;
                }
                part => {
                    checksum.update(part.as_slice());
                    self.push(part.as_slice());
                }
            }
        }
        if shares {
            self.push_sum(checksum);
        } else {
            self.push(&checksum.finish().to_be_bytes());
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests;
