//! Recovery: turns the contents of a directory into a log that can be served and continued.
//!
//! The rules are in this crate's `README.md`. In short: the newest checkpoint is loaded, then every later group is
//! replayed. What an interrupted write left is cut off; what is damaged is marked and never cut off. The last group is
//! written again and synced before anything is served. Recovering twice gives the same result as once.

mod directory;
mod log_end;
mod mend;
mod scan;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::OpenError;
use crate::format::checkpoint::SegmentItem;
use crate::format::footer::{FooterRun, Trailer};
use crate::fs::{File, FileSystem};
use crate::segments::files::{SegmentId, at, corrupt};
use crate::segments::open_files::OpenFiles;
use crate::segments::segment::Segment;
use crate::state::hot_tail::HotTail;
use crate::state::index::Entries;
use crate::state::shared::{Checkpoints, LiveSegment, Retired, State};
use crate::{Durability, LogConfig};

use directory::{Directory, SegmentFile};
use scan::{LogEnd, Scanner};

/// The result of recovery.
pub(crate) struct Recovery {
    pub(crate) state: State,
    pub(crate) resume: Resume,
    pub(crate) next_segment: u64,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) checkpoint_size: u64,
    pub(crate) notes: Vec<String>,
    pub(crate) clean: bool,
    /// Whether the last groups cannot have been lost.
    pub(crate) knows_its_ends: bool,
}

/// Where the log goes on, and what is to be done first.
#[derive(Default)]
pub(crate) struct Resume {
    /// The segment in which the log goes on, if there is one, and the position.
    pub(crate) active: Option<(Arc<Segment>, u64)>,
    /// Full segments that can get their footer now.
    pub(crate) unsealed: Vec<u64>,
    /// Full segments that get their footer when the log has gone on in another one.
    pub(crate) full: Vec<u64>,
    /// Whether damage was found. A checkpoint then notes it before anything is served.
    pub(crate) damaged: bool,
    /// Whether there are shared ranges of which the end is not known any more. A checkpoint then notes it, because the next
    /// start may find a log that was shut down.
    pub(crate) doubted: bool,
    /// How many bytes of log the next start would have to replay.
    pub(crate) replayed: u64,
}

/// What is read of a directory before anything in it is changed.
struct Contents {
    directory: Directory,
    scanner: Scanner,
    /// The segments that are not, or not completely, covered by the checkpoint.
    later: Vec<SegmentFile>,
    log_end: LogEnd,
}

fn read(fs: &dyn FileSystem, open: &Arc<OpenFiles>, path: &Path) -> Result<Contents, OpenError> {
    let mut directory = Directory::read(fs, open, path)?;
    let newest = directory.newest_checkpoint()?;
    let mut scanner = Scanner::new(newest.unwrap_or_default(), directory.clean);
    load_covered(&mut scanner, &directory, path)?;
    let later = directory.segments_from(scanner.checkpoint.covered.segment);
    let log_end = scanner.walk(&later, true)?;
    let log_end = scanner.finish(&later, log_end)?;
    Ok(Contents {
        directory,
        scanner,
        later,
        log_end,
    })
}

/// Whether a log can be opened with the files in a directory, damaged ones among them. Nothing is changed, and nothing
/// need be writable; nobody else may use the directory.
///
/// # Errors
///
/// The [`OpenError`] with which [`Log::open`](crate::Log::open) would refuse the directory.
pub fn check_start(fs: Arc<dyn FileSystem>, directory: &Path) -> Result<(), OpenError> {
    let open = OpenFiles::reading(fs.clone());
    read(&*fs, &open, directory).map(drop)
}

/// Recovers a directory and repairs what an interrupted run left.
pub(crate) fn recover(
    fs: &dyn FileSystem,
    open: &Arc<OpenFiles>,
    config: &LogConfig,
    is_new: bool,
) -> Result<Recovery, OpenError> {
    let path = &config.directory;
    let Contents {
        mut directory,
        mut scanner,
        later,
        log_end,
    } = read(fs, open, path)?;
    let clean = directory.clean;

    let last = scanner.last_mark();
    let replayed = later
        .iter()
        .filter_map(|file| Some(scanner.live.get(&file.segment.number)?.end))
        .sum();
    // The log begins with segment 1, unless its first group needs a larger one: either tells a start without a readable
    // checkpoint that it has all segments.
    let knows_its_ends = is_new || clean.is_some() || ends_synced(config, &later, &scanner.live);
    let is_empty = directory.checkpoints.sequence == 0 && scanner.live.is_empty();
    let mut recovery = Recovery {
        state: State {
            index: std::mem::take(&mut scanner.index),
            tail: HotTail::new(config.hot_tail_bytes),
            writers: std::mem::take(&mut scanner.writers),
            folds: std::mem::take(&mut scanner.folds),
            segments: std::mem::take(&mut scanner.live),
            compacted: std::mem::take(&mut scanner.compacted),
            retired: retired(&directory).map_err(at(path))?,
            reclaimable: true,
            last,
        },
        resume: Resume {
            damaged: scanner.damaged,
            replayed,
            ..Resume::default()
        },
        next_segment: if is_empty {
            1
        } else {
            directory.newest.saturating_add(1)
        },
        checkpoints: std::mem::take(&mut directory.checkpoints),
        checkpoint_size: directory.checkpoint_size,
        notes: std::mem::take(&mut directory.notes),
        clean: clean.is_some() && matches!(log_end, LogEnd::Clean),
        knows_its_ends,
    };
    if !recovery.knows_its_ends {
        recovery.resume.doubted = doubt_shared_ends(&mut recovery.state);
    }
    recovery.notes.append(&mut scanner.notes);
    adopt_footers(&mut recovery, &later).map_err(at(path))?;
    mend::mend(fs, config, &directory, &later, &log_end, &scanner, &recovery)?;
    choose_active(config, &later, &log_end, &mut recovery).map_err(at(path))?;
    Ok(recovery)
}

/// Whether the last group, and whatever may have been written behind it, was synced before it was acknowledged.
fn ends_synced(config: &LogConfig, later: &[SegmentFile], live: &BTreeMap<u64, LiveSegment>) -> bool {
    let last = live.keys().next_back().copied().unwrap_or(0);
    let mut ends = later.iter().filter(|file| file.segment.number >= last).peekable();
    let is_synced = |file: &SegmentFile| file.segment.durability == Durability::Fsync;
    match ends.peek() {
        Some(_) => ends.all(is_synced),
        None => config.durability == Durability::Fsync,
    }
}

/// The ends of ranges with copies elsewhere, as they are found, may be too low. Returns whether there are any of which the
/// owner has not told the end.
fn doubt_shared_ends(state: &mut State) -> bool {
    let mut doubted = false;
    for (_, range) in state.index.iter_mut() {
        if range.shared && range.ended.is_none() {
            range.proven = false;
            doubted = true;
        }
    }
    doubted
}

/// Loads the files that the checkpoint covers completely, from their footers, or group by group where there is none. In
/// the order of their contents, so that each range's records come in the order of their offsets.
fn load_covered(scanner: &mut Scanner, directory: &Directory, path: &Path) -> Result<(), OpenError> {
    let checkpoint = scanner.checkpoint.clone();
    let chain = checkpoint.segments.iter().map(|item| (item.number, item, None));
    let compacted = checkpoint.compacted.iter();
    let compacted = compacted.map(|compacted| (compacted.order, &compacted.segment, Some(compacted.order)));
    let mut files: Vec<_> = chain.chain(compacted).collect();
    files.sort_by_key(|(order, ..)| *order);
    for (_, item, compacted) in files {
        let (id, file) = match compacted {
            Some(_) => (SegmentId::Compacted(item.number), directory.compacted.get(&item.number)),
            None => (SegmentId::Chain(item.number), directory.segments.get(&item.number)),
        };
        let name = path.join(id.file_name());
        let Some(file) = file else {
            return Err(corrupt(name, "the checkpoint lists this segment, and it is missing"));
        };
        if file.segment.salt != item.salt {
            return Err(corrupt(name, "this is not the segment that the checkpoint lists"));
        }
        if scanner.live.contains_key(&item.number) || scanner.compacted.contains_key(&item.number) {
            return Err(corrupt(name, "the checkpoint lists this segment twice"));
        }
        if id == SegmentId::Chain(checkpoint.covered.segment) {
            scanner.begin_at(item.first_group);
            continue;
        }
        load_one(scanner, file, item, &name)?;
        if let Some(live) = scanner.live.get_mut(&item.number) {
            live.damaged |= item.damaged;
        }
        if let Some(order) = compacted {
            scanner.set_aside(item.number, order);
        }
    }
    Ok(())
}

fn load_one(scanner: &mut Scanner, file: &SegmentFile, item: &SegmentItem, name: &Path) -> Result<(), OpenError> {
    let footer = read_footer(&file.segment).map_err(at(name))?;
    match footer.filter(|(trailer, _)| trailer.last.number == item.last_group && !item.damaged) {
        Some((trailer, runs)) => scanner.add_footer(file, &trailer, &runs),
        None => {
            scanner.notes.push(format!("{}: footer rebuilt", name.display()));
            scanner.begin_at(item.first_group);
            scanner.walk(std::slice::from_ref(file), false)?;
            scanner.close_covered(file, item);
        }
    }
    Ok(())
}

/// The ranges in files that are to be removed, as far as their footers tell.
fn retired(directory: &Directory) -> std::io::Result<BTreeMap<SegmentId, Retired>> {
    let mut retired = BTreeMap::new();
    for (id, file) in &directory.retired {
        let keys = read_footer(&file.segment)?
            .map(|(_, runs)| runs.iter().map(|run| run.key).collect())
            .unwrap_or_default();
        let bytes = file.length;
        retired.insert(*id, Retired { keys, bytes });
    }
    Ok(retired)
}

/// A segment's footer, if it exists and is valid.
fn read_footer(segment: &Segment) -> std::io::Result<Option<(Trailer, Vec<FooterRun>)>> {
    let length = segment.file.len()?;
    let Some(at) = length.checked_sub(Trailer::LEN as u64) else {
        return Ok(None);
    };
    let mut bytes = vec![0; Trailer::LEN];
    segment.file.read_at(at, &mut bytes)?;
    let Some(trailer) = Trailer::parse(&bytes) else {
        return Ok(None);
    };
    let ours = trailer.salt == segment.salt && trailer.last.segment == segment.number;
    let fits = trailer.directory.checked_add(trailer.directory_len() as u64) == Some(at);
    if !ours || !fits {
        return Ok(None);
    }
    let mut bytes = vec![0; trailer.directory_len()];
    segment.file.read_at(trailer.directory, &mut bytes)?;
    Ok(trailer.parse_runs(&bytes).map(|runs| (trailer, runs)))
}

/// Has replayed segments with a footer use it, so that their entries need not stay in memory.
fn adopt_footers(recovery: &mut Recovery, later: &[SegmentFile]) -> std::io::Result<()> {
    for file in later {
        let number = file.segment.number;
        let Some(live) = recovery.state.segments.get_mut(&number).filter(|live| !live.damaged) else {
            continue;
        };
        let Some((trailer, runs)) = read_footer(&file.segment)? else {
            continue;
        };
        if trailer.last != live.last {
            continue;
        }
        live.sealed = true;
        for stored in &runs {
            let Some(range) = recovery.state.index.get_mut(stored.key) else {
                continue;
            };
            for run in range.runs.iter_mut().filter(|run| run.segment == number) {
                if (run.first, run.end, run.bytes) == (stored.first, stored.end, stored.bytes) {
                    run.entries = Entries::stored(stored);
                }
            }
        }
    }
    Ok(())
}

/// Decides where the log goes on: after the last group, if its segment is complete, has the same durability and is not
/// damaged at its end; else in a new segment.
fn choose_active(
    config: &LogConfig,
    later: &[SegmentFile],
    log_end: &LogEnd,
    recovery: &mut Recovery,
) -> std::io::Result<()> {
    let newest = recovery.state.segments.keys().next_back().copied();
    for (number, live) in &recovery.state.segments {
        if Some(*number) != newest && !live.sealed {
            recovery.resume.unsealed.push(*number);
        }
    }
    let Some(live) = newest.and_then(|number| recovery.state.segments.get(&number)) else {
        return Ok(());
    };
    let segment = &live.segment;
    let whole = segment.file.len()? == segment.capacity;
    let same = segment.durability == config.durability;
    if !matches!(log_end, LogEnd::Corrupt(_)) && whole && same && !live.sealed && !live.damaged {
        segment.file.pin()?;
        recovery.resume.active = Some((segment.clone(), live.end));
    } else if !live.sealed {
        recovery.resume.full.push(segment.number);
    }
    if config.durability == Durability::Fsync {
        // Groups that were only handed to the operating system must be durable before the log goes on after them.
        for file in later.iter().filter(|file| file.segment.durability == Durability::None) {
            if recovery.state.segments.contains_key(&file.segment.number) {
                file.segment.file.sync_data()?;
            }
        }
    }
    Ok(())
}
