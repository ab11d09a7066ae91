//! Writing by template.

use bytes::BytesMut;

use super::blocks::Block;
use super::shape::{Positions, Shape, WORD};

/// Writes a request whose root table has `scalars` around the vector. `None` if there are too many entries.
pub(crate) fn request<
    E: Block<BLOCK>,
    const HEAD: usize,
    const ROOT: usize,
    const BLOCK: usize,
    const SCALARS: usize,
>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    scalars: [i32; SCALARS],
    entries: &[E],
    out: &mut BytesMut,
) -> Option<()> {
    let at = shape.positions(u32::try_from(entries.len()).ok()?)?;
    start(shape, at, out);
    scalars
        .iter()
        .for_each(|scalar| out.extend_from_slice(&scalar.to_le_bytes()));
    out.extend_from_slice(&shape.root_to_vector().to_le_bytes());
    vector(shape, at, out);
    let mut to_vtable = shape.entry_to_vtable(at);
    for entry in entries {
        let mut block = [0; BLOCK];
        put(&mut block, 0, to_vtable);
        entry.store(&mut block);
        out.extend_from_slice(&block);
        to_vtable += Shape::<HEAD, ROOT, BLOCK>::STEP;
    }
    Some(())
}

/// Writes a response in which every status is success. `None` if there are too many entries.
pub(crate) fn response<E: Block<BLOCK>, const HEAD: usize, const ROOT: usize, const BLOCK: usize>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    throttle_time_ms: i32,
    entries: &[E],
    out: &mut BytesMut,
) -> Option<()> {
    let at = shape.positions(u32::try_from(entries.len()).ok()?)?;
    start(shape, at, out);
    out.extend_from_slice(&throttle_time_ms.to_le_bytes());
    out.extend_from_slice(&shape.root_to_status(at).to_le_bytes());
    out.extend_from_slice(&shape.root_to_vector().to_le_bytes());
    vector(shape, at, out);
    let mut to_vtable = shape.entry_to_vtable(at);
    let mut to_status = shape.entry_to_status(at);
    for entry in entries {
        let mut block = [0; BLOCK];
        put(&mut block, 0, to_vtable);
        put(&mut block, shape.status_in_block as usize, to_status);
        entry.store(&mut block);
        out.extend_from_slice(&block);
        to_vtable += Shape::<HEAD, ROOT, BLOCK>::STEP;
        to_status = to_status.wrapping_sub(Shape::<HEAD, ROOT, BLOCK>::STEP);
    }
    out.extend_from_slice(&shape.status(at));
    Some(())
}

/// Writes the constant head and the root table's first word.
fn start<const HEAD: usize, const ROOT: usize, const BLOCK: usize>(
    shape: &Shape<HEAD, ROOT, BLOCK>,
    at: Positions,
    out: &mut BytesMut,
) {
    // Includes room for a status, which requests do not have.
    out.reserve(at.end as usize + 8);
    out.extend_from_slice(&shape.head);
    out.extend_from_slice(&shape.root_to_vtable().to_le_bytes());
}

/// Writes the vector of offsets, up to the first entry.
fn vector<const HEAD: usize, const ROOT: usize, const BLOCK: usize>(
    _: &Shape<HEAD, ROOT, BLOCK>,
    at: Positions,
    out: &mut BytesMut,
) {
    out.extend_from_slice(&at.count.to_le_bytes());
    let mut distance = at.first_distance;
    for _ in 0..at.count {
        out.extend_from_slice(&distance.to_le_bytes());
        distance += Shape::<HEAD, ROOT, BLOCK>::STEP - WORD;
    }
    out.resize(out.len() + at.gap, 0);
}

/// Writes a word into a block.
#[inline(always)]
fn put<const BLOCK: usize>(block: &mut [u8; BLOCK], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
}
