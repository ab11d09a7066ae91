//! Reads by template: every constant and every offset is compared, so nothing remains to be verified.
//!
//! The bytes come from a peer. `None` means that the header has another shape, which may be valid.

use super::blocks::Block;
use super::shape::{Positions, Shape, WORD};

/// Reads a request: the scalars of the root table around the vector, and the entries.
pub(crate) fn request<
    E: Block<BLOCK>,
    C: FromIterator<E>,
    const HEAD: usize,
    const ROOT: usize,
    const BLOCK: usize,
    const SCALARS: usize,
>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    header: &[u8],
) -> Option<([i32; SCALARS], C)> {
    let rest = start(shape, header)?;
    let mut scalars = [0; SCALARS];
    let mut rest = rest;
    for scalar in &mut scalars {
        *scalar = i32::from_le_bytes(take(&mut rest)?);
    }
    expect(&mut rest, shape.root_to_vector())?;
    let (at, blocks, _) = vector(shape, rest)?;
    let mut to_vtable = shape.entry_to_vtable(at);
    for block in blocks {
        if word(block, 0) != Some(to_vtable) {
            return None;
        }
        to_vtable += Shape::<HEAD, ROOT, BLOCK>::STEP;
    }
    Some((scalars, blocks.iter().map(E::load).collect()))
}

/// Reads a response in which every status is success: its throttle time and its entries.
pub(crate) fn response<
    E: Block<BLOCK>,
    C: FromIterator<E>,
    const HEAD: usize,
    const ROOT: usize,
    const BLOCK: usize,
>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    header: &[u8],
) -> Option<(i32, C)> {
    let mut rest = start(shape, header)?;
    let throttle_time_ms = i32::from_le_bytes(take(&mut rest)?);
    let root_to_status = u32::from_le_bytes(take(&mut rest)?);
    expect(&mut rest, shape.root_to_vector())?;
    let (at, blocks, behind) = vector(shape, rest)?;
    if root_to_status != shape.root_to_status(at) || !behind.starts_with(&shape.status(at)) {
        return None;
    }
    let mut to_vtable = shape.entry_to_vtable(at);
    let mut to_status = shape.entry_to_status(at);
    for block in blocks {
        if word(block, 0) != Some(to_vtable) || word(block, shape.status_in_block as usize) != Some(to_status) {
            return None;
        }
        to_vtable += Shape::<HEAD, ROOT, BLOCK>::STEP;
        to_status = to_status.wrapping_sub(Shape::<HEAD, ROOT, BLOCK>::STEP);
    }
    Some((throttle_time_ms, blocks.iter().map(E::load).collect()))
}

/// Compares the constant head and the root table's first word; returns the rest of the header.
fn start<'a, const HEAD: usize, const ROOT: usize, const BLOCK: usize>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    header: &'a [u8],
) -> Option<&'a [u8]> {
    let mut rest = header.strip_prefix(&shape.head)?;
    expect(&mut rest, shape.root_to_vtable())?;
    Some(rest)
}

/// Compares the vector's offsets; returns the positions, the entries' blocks and the bytes after them.
#[allow(clippy::type_complexity, reason = "three parts of one header, taken apart at once")]
fn vector<'a, const HEAD: usize, const ROOT: usize, const BLOCK: usize>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    mut rest: &'a [u8],
) -> Option<(Positions, &'a [[u8; BLOCK]], &'a [u8])> {
    let count = u32::from_le_bytes(take(&mut rest)?);
    let at = shape.positions(count)?;
    let entries = usize::try_from(count).ok()?;
    let (offsets, rest) = rest.split_at_checked(entries.checked_mul(4)?)?;
    let mut distance = at.first_distance;
    for offset in offsets.as_chunks::<4>().0 {
        if u32::from_le_bytes(*offset) != distance {
            return None;
        }
        distance += Shape::<HEAD, ROOT, BLOCK>::STEP - WORD;
    }
    let (blocks, behind) = rest.get(at.gap..)?.split_at_checked(entries.checked_mul(BLOCK)?)?;
    Some((at, blocks.as_chunks::<BLOCK>().0, behind))
}

/// Takes four bytes.
fn take(rest: &mut &[u8]) -> Option<[u8; 4]> {
    let (word, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*word)
}

/// Takes four bytes, which must be this word.
fn expect(rest: &mut &[u8], word: u32) -> Option<()> {
    (u32::from_le_bytes(take(rest)?) == word).then_some(())
}

/// A word of a block.
fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
