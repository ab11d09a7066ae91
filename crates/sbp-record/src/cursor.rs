//! Reads bytes that are in several chunks, without joining them.

use bytes::Bytes;

use crate::error::BatchError;

/// A position in a list of chunks. Cheap to copy, so looking ahead uses a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkCursor<'a> {
    current: &'a [u8],
    rest: &'a [Bytes],
    position: usize,
    remaining: usize,
}

impl<'a> ChunkCursor<'a> {
    pub(crate) fn new(chunks: &'a [Bytes]) -> Self {
        let remaining = chunks
            .iter()
            .fold(0_usize, |sum, chunk| sum.saturating_add(chunk.len()));
        Self {
            current: &[],
            rest: chunks,
            position: 0,
            remaining,
        }
    }

    pub(crate) fn contiguous(bytes: &'a [u8]) -> Self {
        Self {
            current: bytes,
            rest: &[],
            position: 0,
            remaining: bytes.len(),
        }
    }

    /// The number of bytes read or skipped so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The number of bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Refuses when fewer than `count` bytes are left.
    pub(crate) fn need(&self, count: usize, part: &'static str) -> Result<(), BatchError> {
        if count <= self.remaining {
            return Ok(());
        }
        Err(BatchError::Truncated {
            part,
            needed: widen(self.position.saturating_add(count)),
            available: widen(self.position.saturating_add(self.remaining)),
        })
    }

    /// The next contiguous bytes, at most `limit` of them; empty only at the end or with a limit of 0.
    fn next_piece(&mut self, limit: usize) -> &'a [u8] {
        while self.current.is_empty() {
            let Some((first, rest)) = self.rest.split_first() else {
                return &[];
            };
            self.current = first;
            self.rest = rest;
        }
        let (piece, left) = self.current.split_at(limit.min(self.current.len()));
        self.current = left;
        self.position = self.position.saturating_add(piece.len());
        self.remaining = self.remaining.saturating_sub(piece.len());
        piece
    }

    /// The next `count` bytes as pieces; the cursor moves past them.
    pub(crate) fn pieces(&mut self, count: usize, part: &'static str) -> Result<Pieces<'_, 'a>, BatchError> {
        self.need(count, part)?;
        Ok(Pieces {
            cursor: self,
            left: count,
        })
    }

    /// Skips `count` bytes.
    pub(crate) fn skip(&mut self, count: usize, part: &'static str) -> Result<(), BatchError> {
        self.pieces(count, part)?.for_each(drop);
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], BatchError> {
        let mut out = [0; N];
        let mut free: &mut [u8] = &mut out;
        for piece in self.pieces(N, part)? {
            let (head, tail) = free.split_at_mut(piece.len().min(free.len()));
            head.copy_from_slice(piece);
            free = tail;
        }
        Ok(out)
    }

    /// The next `count` bytes as one slice: in place if they are contiguous, else copied to `scratch`.
    pub(crate) fn together<'s>(
        &mut self,
        count: usize,
        scratch: &'s mut Vec<u8>,
        part: &'static str,
    ) -> Result<&'s [u8], BatchError>
    where
        'a: 's,
    {
        self.need(count, part)?;
        let first = self.next_piece(count);
        if first.len() == count {
            return Ok(first);
        }
        scratch.clear();
        scratch.extend_from_slice(first);
        for piece in self.pieces(count - first.len(), part)? {
            scratch.extend_from_slice(piece);
        }
        Ok(scratch)
    }
}

/// The pieces of a part of the chunks.
pub(crate) struct Pieces<'c, 'a> {
    cursor: &'c mut ChunkCursor<'a>,
    left: usize,
}

impl<'a> Iterator for Pieces<'_, 'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let piece = self.cursor.next_piece(self.left);
        self.left = self.left.saturating_sub(piece.len());
        (!piece.is_empty()).then_some(piece)
    }
}

/// Converts a length for messages.
pub(crate) fn widen(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
