//! Writing: what recovery changes on the disk before anything is served.

use std::io;
use std::path::Path;

use super::Recovery;
use super::directory::{Directory, SegmentFile};
use super::scan::{Cursor, Scanner};
use super::tail::Tail;
use crate::files::{CLEAN, at, remove_if_there};
use crate::format::group::is_zero;
use crate::format::{BLOCK, block_up};
use crate::fs::{File, FileSystem};
use crate::{LogConfig, OpenError};

/// Removes litter and unused segments, cuts the tail, makes the last group durable, removes the clean mark. Every step
/// can be interrupted: the next start finds the same log.
pub(crate) fn mend(
    fs: &dyn FileSystem,
    config: &LogConfig,
    directory: &Directory,
    later: &[SegmentFile],
    tail: &Tail,
    scanner: &Scanner,
    recovery: &mut Recovery,
) -> Result<(), OpenError> {
    let path = &config.directory;
    for litter in &directory.litter {
        remove_if_there(fs, litter).map_err(at(litter))?;
    }
    // Newest first: a gap in the middle would look like loss to the next start.
    for file in later
        .iter()
        .rev()
        .filter(|file| !recovery.segments.contains_key(&file.segment.number))
    {
        remove_if_there(fs, &file.path).map_err(at(&file.path))?;
    }
    fs.sync_dir(path).map_err(at(path))?;

    match tail {
        Tail::End => {}
        Tail::Torn(cursor) | Tail::Cut(cursor) => cut(later, *cursor, recovery)?,
        Tail::Corrupt(cursor) => keep(later, *cursor)?,
    }
    if let Some((mark, length)) = scanner.last
        && let Some(file) = later.iter().find(|file| file.segment.number == mark.segment)
    {
        rewrite(file, mark.position, block_up(u64::from(length))).map_err(at(&file.path))?;
        file.segment.file.sync_data().map_err(at(&file.path))?;
    }
    if scanner.clean.is_some() {
        remove_clean_mark(fs, path).map_err(at(path))?;
    }
    Ok(())
}

fn remove_clean_mark(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    remove_if_there(fs, &path.join(CLEAN))?;
    fs.sync_dir(path)
}

/// Turns everything behind the last group into zeros, where its segment is kept.
fn cut(later: &[SegmentFile], cursor: Cursor, recovery: &Recovery) -> Result<(), OpenError> {
    let Some(file) = later.get(cursor.file) else {
        return Ok(());
    };
    let Some(live) = recovery.segments.get(&file.segment.number) else {
        return Ok(());
    };
    if live.sealed {
        // What lies behind its last group is its footer.
        return Ok(());
    }
    if file.length != file.segment.capacity {
        // It had a footer. Its length comes back before the footer goes: short and without one it would be refused.
        restore_length(file).map_err(at(&file.path))?;
    }
    let image = file.read().map_err(at(&file.path))?;
    each_used_block(&image, cursor.position, |position, block| {
        file.segment.file.write_at(position, &vec![0; block.len()])
    })
    .and_then(|()| file.segment.file.sync_data())
    .map_err(at(&file.path))
}

fn restore_length(file: &SegmentFile) -> io::Result<()> {
    let segment = &file.segment;
    segment.file.set_len(file.length.min(segment.capacity))?;
    segment.file.preallocate(segment.capacity)?;
    segment.file.sync_data()
}

/// What is left of a damaged tail may exist in the page cache only; what was saved from it is about to be served.
fn keep(later: &[SegmentFile], cursor: Cursor) -> Result<(), OpenError> {
    for (number, file) in later.iter().enumerate().skip(cursor.file) {
        let start = if number == cursor.file { cursor.position } else { BLOCK };
        let image = file.read().map_err(at(&file.path))?;
        each_used_block(&image, start, |position, block| {
            file.segment.file.write_at(position, block)
        })
        .and_then(|()| file.segment.file.sync_data())
        .map_err(at(&file.path))?;
    }
    Ok(())
}

fn each_used_block(image: &[u8], from: u64, mut act: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let rest = usize::try_from(from)
        .ok()
        .and_then(|from| image.get(from..))
        .unwrap_or_default();
    let mut position = from;
    for block in rest.chunks(BLOCK as usize) {
        if !is_zero(block) {
            act(position, block)?;
        }
        position += block.len() as u64;
    }
    Ok(())
}

/// Writes the same bytes again, so that the sync that follows covers them whatever happened before.
fn rewrite(file: &SegmentFile, position: u64, length: u64) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.segment.file.read_at(position, &mut bytes)?;
    file.segment.file.write_at(position, &bytes)
}
