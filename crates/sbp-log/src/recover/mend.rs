//! The changes that recovery makes on the disk before anything is served.

use std::io;

use super::Recovery;
use super::directory::{Directory, SegmentFile};
use super::scan::{LogEnd, Scanner, SegmentPosition};
use crate::format::group::is_zero;
use crate::format::{BLOCK, block_up, bytes_from};
use crate::fs::{File, FileSystem};
use crate::segments::files::{CLEAN, at, remove_if_there};
use crate::{LogConfig, OpenError};

/// Removes leftover and unused files, cuts off the end if needed, makes the last group durable, and removes the mark of
/// a clean end. Every step can be interrupted: the next start finds the same log.
pub(crate) fn mend(
    fs: &dyn FileSystem,
    config: &LogConfig,
    directory: &Directory,
    later: &[SegmentFile],
    log_end: &LogEnd,
    scanner: &Scanner,
    recovery: &Recovery,
) -> Result<(), OpenError> {
    let path = &config.directory;
    for litter in &directory.litter {
        remove_if_there(fs, litter).map_err(at(litter))?;
    }
    // Newest first, because the next start would take a gap in the middle for a loss.
    for file in later
        .iter()
        .rev()
        .filter(|file| !recovery.state.segments.contains_key(&file.segment.number))
    {
        remove_if_there(fs, &file.path).map_err(at(&file.path))?;
    }
    fs.sync_dir(path).map_err(at(path))?;

    match log_end {
        LogEnd::Clean => {}
        LogEnd::Torn(cursor) | LogEnd::Cut(cursor) => cut(later, *cursor, recovery)?,
        LogEnd::Corrupt(cursor) => keep(later, *cursor)?,
    }
    if let Some((mark, length)) = scanner.last
        && let Some(file) = later.iter().find(|file| file.segment.number == mark.segment)
    {
        rewrite(file, mark.position, block_up(u64::from(length))).map_err(at(&file.path))?;
        file.segment.file.sync_data().map_err(at(&file.path))?;
    }
    if scanner.clean.is_some() {
        let removed = remove_if_there(fs, &path.join(CLEAN)).and_then(|()| fs.sync_dir(path));
        removed.map_err(at(path))?;
    }
    Ok(())
}

/// Overwrites everything after the last group with zeros in the segment of that group. Later segments had no valid group
/// and have been removed.
fn cut(later: &[SegmentFile], cursor: SegmentPosition, recovery: &Recovery) -> Result<(), OpenError> {
    let Some(file) = later.get(cursor.file) else {
        return Ok(());
    };
    let Some(live) = recovery.state.segments.get(&file.segment.number) else {
        return Ok(());
    };
    if live.sealed {
        // After the last group of a sealed segment comes its footer, which stays.
        return Ok(());
    }
    if file.length != file.segment.capacity {
        // The segment had a footer. Its length is restored before the footer is overwritten: a short segment without a
        // footer would be refused.
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

/// Writes a damaged end again: it may be in the page cache only, and records salvaged from it are about to be served.
fn keep(later: &[SegmentFile], cursor: SegmentPosition) -> Result<(), OpenError> {
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
    let mut position = from;
    for block in bytes_from(image, from).chunks(BLOCK as usize) {
        if !is_zero(block) {
            act(position, block)?;
        }
        position += block.len() as u64;
    }
    Ok(())
}

/// Writes the same bytes again, so that the next sync makes them durable whatever happened before.
fn rewrite(file: &SegmentFile, position: u64, length: u64) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.segment.file.read_at(position, &mut bytes)?;
    file.segment.file.write_at(position, &bytes)
}
