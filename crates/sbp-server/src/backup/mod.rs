//! Backups of a data directory, also while a server uses it, and their restoration.

mod manifest;
mod metadata;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sbp_log::{
    BackingUp, BackupFile, FileLock, FileSystem, LogBackup, OpenMode, RealFileSystem, restore_order,
    restored_without_id,
};
use sbp_types::{RangeIndex, RangeKey, StreamId};

use crate::error::StartError;
use crate::meta::{self, MetadataStore, RedbStore};
use crate::range::HeldRange;
use crate::storage::{Stored, has_placement, install, log_error, metadata_error};
use crate::verify::{DirectoryFault, SUPERBLOCK, verify};
pub use manifest::{BackupManifest, ManifestFile, ManifestStream};

/// How often a backup begins anew because files that it needed were removed meanwhile.
const ATTEMPTS: usize = 50;
/// The file that a running server, and a backup under way, keep locked.
const LOCK: &str = "lock";
/// What a backup is called until it is whole: this in a directory that is there already, else this behind its name.
const UNFINISHED: &str = ".unfinished";
/// What is wrong with a file of a backup that was changed, and in which every checksum is right all the same.
const NOT_LISTED: &str = "it is not the file that the manifest names";
/// What a new file system has in it.
const LOST_AND_FOUND: &str = "lost+found";

/// Why there is no backup, or no restored directory. Nothing that calls itself one is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The target is there already.
    #[error("{} is there and is not empty: name a directory that is to be made", .path.display())]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// Another backup to the same place is under way.
    #[error("another backup to {} is under way", .path.display())]
    UnderWay {
        /// The target.
        path: PathBuf,
    },
    /// What would hold the unfinished backup is not this user's alone.
    #[error(
        "{} is there, and is a link, no directory, or one that other users may write: nothing in it is touched; \
         look who made it, remove it, and try again",
        .path.display()
    )]
    Foreign {
        /// Where the unfinished backup would be.
        path: PathBuf,
    },
    /// What was named is no backup, or not a whole one.
    #[error("{} is no backup: {reason}", .path.display())]
    NoBackup {
        /// What was named.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Records were removed from the log again and again while it was copied.
    #[error("files of {} were removed {ATTEMPTS} times while they were copied: try again", .path.display())]
    Restless {
        /// The data directory.
        path: PathBuf,
    },
    /// A backup is damaged.
    #[error("{} is damaged in {faults} place(s), the first one in {first}: `sbp verify` names all", .path.display())]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// The number of damaged places.
        faults: usize,
        /// The first one.
        first: String,
    },
    /// The data directory cannot be read.
    #[error(transparent)]
    Directory(#[from] StartError),
    /// A file or directory cannot be written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |source| BackupError::Io { path, source }
}

/// Makes a backup of the data directory `source` in the new directory `target`. A server may use `source` meanwhile. With
/// `link`, files that never change again are linked where both are on one file system, which takes no room and no time.
///
/// # Errors
///
/// [`BackupError`]; then `target` is as it was, but for a hidden directory where that cannot be removed.
pub fn back_up(source: &Path, target: &Path, link: bool) -> Result<BackupManifest, BackupError> {
    refuse_if_there(target, &[UNFINISHED, LOST_AND_FOUND])?;
    if !source.join(SUPERBLOCK).is_file() {
        let reason = "it has no superblock, so no server has ever used it".to_owned();
        let path = source.to_owned();
        return Err(BackupError::NoBackup { path, reason });
    }
    let aside = Aside::make(target)?;
    let manifest = fill(source, &aside.path, link)?;
    aside.publish(target)?;
    Ok(manifest)
}

fn fill(source: &Path, aside: &Path, link: bool) -> Result<BackupManifest, BackupError> {
    let files = RealFileSystem;
    let failed = |error| BackupError::Directory(log_error(source, error));
    for _attempt in 0..ATTEMPTS {
        empty(aside)?;
        // In this order: what the checkpoint covers, the metadata, what came behind the checkpoint. So nothing that the
        // metadata knows of is missing in the log, and the log is cut where it goes beyond the metadata.
        let Some(log) = BackingUp::begin(&files, source, aside, link).map_err(failed)? else {
            continue;
        };
        let (changes, stored) = metadata::read_in_use(source)?;
        let known = Known::new(&stored);
        if let Some(log) = log.finish(&|key| known.has(key)).map_err(failed)? {
            return complete(source, aside, log, &changes, &stored);
        }
    }
    Err(BackupError::Restless {
        path: source.to_owned(),
    })
}

/// Adds the metadata and the manifest.
fn complete(
    source: &Path,
    aside: &Path,
    mut log: LogBackup,
    changes: &[meta::MetadataChange],
    stored: &Stored,
) -> Result<BackupManifest, BackupError> {
    let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let failed = |error| BackupError::Directory(metadata_error(source, error));
    let mut store = RedbStore::open(&files, aside).map_err(failed)?;
    store.commit(changes).map_err(failed)?;
    drop(store);
    let path = aside.join(meta::FILE);
    log.files
        .push(BackupFile::other(meta::FILE, &fs::read(&path).map_err(at(&path))?));
    let manifest = BackupManifest::new(log, stored);
    manifest.write(aside)?;
    Ok(manifest)
}

/// The ranges that the metadata knows of.
struct Known<'s> {
    stored: &'s Stored,
    held: HashSet<RangeKey>,
    /// The first range of each stream.
    first: HashMap<StreamId, RangeIndex>,
}

impl<'s> Known<'s> {
    fn new(stored: &'s Stored) -> Self {
        let mut first: HashMap<StreamId, RangeIndex> = HashMap::new();
        for HeldRange { key, .. } in &stored.held {
            let first = first.entry(key.stream).or_insert(key.range);
            *first = key.range.min(*first);
        }
        let held = stored.held.iter().map(|held| held.key).collect();
        Self { stored, held, first }
    }

    /// Whether a record of this range may be in the log: it is known, the server was let go of it, it was trimmed away, or its
    /// stream deleted.
    fn has(&self, key: RangeKey) -> bool {
        let trimmed = self.first.get(&key.stream).is_some_and(|first| key.range < *first);
        trimmed
            || self.stored.state.has_tombstone(key.stream)
            || self.held.contains(&key)
            || self.stored.let_go.contains(&key)
    }
}

/// A directory that gets its name when it is whole; or whose files move up when they are, where the name is taken by an empty
/// directory: that may be a mount point, or what a link leads to.
#[derive(Debug)]
struct Aside {
    path: PathBuf,
    inside: bool,
    _lock: Box<dyn FileLock>,
    published: bool,
}

impl Aside {
    fn make(target: &Path) -> Result<Self, BackupError> {
        let inside = fs::symlink_metadata(target).is_ok();
        let path = match (inside, target.file_name()) {
            (true, _) => target.join(UNFINISHED),
            (false, None) => return Err(at(target)(io::ErrorKind::NotFound.into())),
            (false, Some(name)) => {
                let parent = match target.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                fs::create_dir_all(parent).map_err(at(parent))?;
                parent.join(format!(".{}{UNFINISHED}", name.to_string_lossy()))
            }
        };
        make_private(&path)?;
        refuse_foreign(&path)?;
        let lock = match RealFileSystem.lock(&path.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let path = target.to_owned();
                return Err(BackupError::UnderWay { path });
            }
            lock => lock.map_err(at(&path))?,
        };
        let aside = Self {
            path,
            inside,
            _lock: lock,
            published: false,
        };
        if inside {
            aside.take_back(target)?;
        }
        Ok(aside)
    }

    /// Gives the directory its name, durably.
    fn publish(mut self, target: &Path) -> Result<(), BackupError> {
        RealFileSystem.sync_dir(&self.path).map_err(at(&self.path))?;
        if self.inside {
            // What is dropped now are the first names of the files.
            return self.move_up(target);
        }
        fs::rename(&self.path, target).map_err(at(target))?;
        self.published = true;
        let parent = self.path.parent().unwrap_or(Path::new("."));
        RealFileSystem.sync_dir(parent).map_err(at(parent))
    }

    /// Gives the files a second name in `target`, which never takes one that is taken, and then removes the first. The
    /// manifest comes last: without it the directory is no backup. After an error nothing is left in `target`.
    fn move_up(&self, target: &Path) -> Result<(), BackupError> {
        refuse_if_there(target, &[UNFINISHED, LOST_AND_FOUND])?;
        let mut names = RealFileSystem.list(&self.path).map_err(at(&self.path))?;
        names.sort_by_key(|name| name == manifest::MANIFEST);
        let mut moved = Vec::new();
        let all = names.iter().try_for_each(|name| {
            let to = target.join(name);
            if name == manifest::MANIFEST {
                RealFileSystem.sync_dir(target).map_err(at(target))?;
            }
            second_name(&self.path.join(name), &to).map_err(at(&to))?;
            moved.push(to);
            Ok(())
        });
        let all = all.and_then(|()| RealFileSystem.sync_dir(target).map_err(at(target)));
        if all.is_err() {
            for name in moved.iter().rev() {
                if let Err(error) = fs::remove_file(name) {
                    tracing::warn!(%error, file = %name.display(), "a file of an unfinished backup was left behind");
                }
            }
        }
        all
    }

    /// Removes what a backup that was interrupted while its files moved up left in `target`.
    fn take_back(&self, target: &Path) -> Result<(), BackupError> {
        for name in RealFileSystem.list(&self.path).map_err(at(&self.path))? {
            if is_moving(target, name.as_ref()) {
                let path = target.join(name);
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }
}

/// Gives a file a second name that nothing has. Where a file system knows no second names, the file changes its name.
fn second_name(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && fs::symlink_metadata(to).is_err() => {
            fs::rename(from, to)
        }
        linked => linked,
    }
}

/// Whether a file in `target` is there because an unfinished backup was moving its files up: it has its first name still.
fn is_moving(target: &Path, name: &OsStr) -> bool {
    let identity = |path: PathBuf| fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()));
    let first = identity(target.join(UNFINISHED).join(name));
    let is_whole = target.join(manifest::MANIFEST).exists();
    !is_whole && matches!((first, identity(target.join(name))), (Ok(first), Ok(second)) if first == second)
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "an unfinished backup was left behind");
        }
    }
}

fn make_private(path: &Path) -> Result<(), BackupError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(at(path)),
    }
}

/// Refuses what is no directory itself but leads to one, and a directory that somebody else may write: what is in it is
/// removed, and what is written there must stay what it is.
fn refuse_foreign(path: &Path) -> Result<(), BackupError> {
    let about = fs::symlink_metadata(path).map_err(at(path))?;
    let ours = about.uid() == rustix::process::geteuid().as_raw();
    if about.is_dir() && ours && about.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(BackupError::Foreign { path: path.to_owned() })
}

/// Removes what an earlier attempt left.
fn empty(aside: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(aside).map_err(at(aside))? {
        let path = entry.map_err(at(aside))?.path();
        if path.file_name().is_some_and(|name| name != LOCK) {
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Refuses a target with anything in it but what has these names.
fn refuse_if_there(target: &Path, but: &[&str]) -> Result<(), BackupError> {
    match fs::read_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(target).is_err() => Ok(()),
        Err(error) => Err(at(target)(error)),
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(at(target))?.file_name();
                let is_moving = but.contains(&UNFINISHED) && is_moving(target, &name);
                if !is_moving && !but.iter().any(|but| name == *but) {
                    return Err(BackupError::TargetExists {
                        path: target.to_owned(),
                    });
                }
            }
            Ok(())
        }
    }
}

/// How a backup is restored.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    /// Restore also a backup that is damaged, unless no server would start on it. The server on what is restored finds
    /// the damage and answers reads of the records that it costs with 2502.
    pub with_damage: bool,
    /// Keep the number of a range server whose metadata are elsewhere, so that it is taken for the one that was backed up. What that
    /// one has acknowledged since the backup is not in it: others must not count on it for that, so this is for ranges that no other
    /// server has.
    pub keep_number: bool,
}

/// A directory that was made from a backup.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// What the backup says of itself.
    pub manifest: BackupManifest,
    /// Damage of the backup that its server did not know of, and that is now in the directory too: none without
    /// [`RestoreOptions::with_damage`].
    pub faults: Vec<DirectoryFault>,
    /// Whether it has lost the number that its range server had. It says so, and does not start.
    pub without_number: bool,
}

/// Copies a backup into the new data directory `target`, once every checksum in it is right, but for those of records that
/// were known to be damaged when it was made: the restored directory knows them as damaged too. `progress` is told the bytes
/// read so far and all bytes there are.
///
/// # Errors
///
/// [`BackupError`]; then no server starts on `target`.
pub fn restore(
    backup: &Path,
    target: &Path,
    options: RestoreOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Restored, BackupError> {
    let manifest = BackupManifest::read(backup)?;
    refuse_if_there(target, &[LOST_AND_FOUND])?;
    let mut faults = verify(backup, progress)?.faults;
    faults.retain(|fault| !fault.known);
    let refuse = |fault: String| {
        Err(BackupError::Damaged {
            path: backup.to_owned(),
            faults: faults.len().max(1),
            first: fault,
        })
    };
    // Without these no server starts.
    let needed = [backup.join(meta::FILE), backup.join(SUPERBLOCK)];
    let mut refused = faults.iter();
    if let Some(first) = refused.find(|fault| !options.with_damage || needed.contains(&fault.file)) {
        return refuse(format!("{}: {}", first.file.display(), first.what));
    }
    if let Some(file) = manifest.files.iter().find(|file| !backup.join(&file.name).is_file()) {
        return refuse(format!("{}: missing", backup.join(&file.name).display()));
    }
    if !faults.is_empty()
        && let Err(error) = sbp_log::check_start(Arc::new(RealFileSystem), backup)
    {
        return refuse(format!("{error}; no server starts on this"));
    }
    let without_number = if !options.keep_number && is_of_no_placement_driver(backup)? {
        let path = backup.join(SUPERBLOCK);
        restored_without_id(&fs::read(&path).map_err(at(&path))?)
    } else {
        None
    };
    RealFileSystem.create_dir_all(target).map_err(at(target))?;
    let names = manifest.files.iter().map(|file| file.name.clone()).collect();
    for name in restore_order(names) {
        let file = backup.join(&name);
        let listed = copy(
            backup,
            target,
            &manifest,
            &name,
            (options.with_damage, without_number.as_deref()),
        )?;
        if !listed && !faults.iter().any(|fault| fault.file == file) {
            let to = fs::metadata(&file).map_err(at(&file))?.len();
            faults.push(DirectoryFault::of_file(file, to, NOT_LISTED.to_owned()));
        }
    }
    RealFileSystem.sync_dir(target).map_err(at(target))?;
    Ok(Restored {
        manifest,
        faults,
        without_number: without_number.is_some(),
    })
}

/// Whether a backup is of a server whose metadata are elsewhere.
fn is_of_no_placement_driver(backup: &Path) -> Result<bool, BackupError> {
    let path = backup.join(meta::FILE);
    let bytes = fs::read(&path).map_err(at(&path))?;
    let stored = meta::read_copy(bytes).map_err(|error| BackupError::Damaged {
        path: backup.to_owned(),
        faults: 1,
        first: format!("{}: {error}", path.display()),
    })?;
    let stored = install(stored.changes);
    Ok(!has_placement(&stored.state))
}

/// Copies one file, if it is the one that the manifest names, or may be damaged; the superblock may be replaced. Returns whether it is
/// that one.
fn copy(
    backup: &Path,
    target: &Path,
    manifest: &BackupManifest,
    name: &str,
    (with_damage, superblock): (bool, Option<&[u8]>),
) -> Result<bool, BackupError> {
    let (from, to) = (backup.join(name), target.join(name));
    let bytes = fs::read(&from).map_err(at(&from))?;
    let mut files = manifest.files.iter();
    let listed = files.any(|file| file.name == name && file.is(&bytes));
    if !listed && !with_damage {
        return Err(BackupError::Damaged {
            path: backup.to_owned(),
            faults: 1,
            first: format!("{name}: {NOT_LISTED}"),
        });
    }
    let bytes = match superblock {
        Some(other) if name == SUPERBLOCK => other.to_owned(),
        _ => bytes,
    };
    let written = RealFileSystem.open(&to, OpenMode::Truncate).and_then(|file| {
        // The log writes on behind its last group, and must find room there.
        if let Some(length) = sbp_log::unsealed_length(&from, &bytes) {
            file.preallocate(length)?;
        }
        file.write_at(0, &bytes)?;
        file.sync_data()
    });
    written.map_err(at(&to))?;
    // In the order of `restore_order`, also when the power goes: the superblock comes last.
    RealFileSystem.sync_dir(target).map_err(at(target))?;
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_appears_in_the_target_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        let ours = Aside::make(target).unwrap();
        for name in [SUPERBLOCK, manifest::MANIFEST, "a"] {
            fs::write(ours.path.join(name), "ours").unwrap();
        }
        let path = ours.path.clone();
        fs::write(target.join(SUPERBLOCK), "theirs").unwrap();
        let refused = ours.publish(target).unwrap_err();
        assert!(matches!(refused, BackupError::TargetExists { .. }), "{refused}");
        assert!(!path.exists());
        assert_eq!(fs::read(target.join(SUPERBLOCK)).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(target).unwrap().count(), 1);
        // In between the look and the moving, too.
        let from = dir.path().join("b");
        fs::write(&from, "ours").unwrap();
        let taken = second_name(&from, &target.join(SUPERBLOCK)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    }
}
