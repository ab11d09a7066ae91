//! The file of names on the disk: read by a server while it runs, and changed by `sbp token`.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sbp_locks::{Mutex, RwLock};
use sbp_messages::Token;

use super::audit::Audit;
use super::entry::{Entry, read_entries, write_entry};
use super::error::AccessError;
use super::issuer::Issuer;
use super::key_url::KeyUrl;
use super::moment::Moment;
use super::name_change::changes;
use super::principal::{Denied, Known, KnownBy, Principal};
use super::watched::{Watched, read_guarded};
use crate::config::AccessConfig;

/// The file of names: one JSON object on each line.
#[derive(Debug)]
pub struct AuthFile {
    path: PathBuf,
    /// All lines, also those that are no entries.
    lines: Vec<String>,
    /// The new text. While it exists, nobody else changes the file.
    lock: PathBuf,
    /// Whether entries were added: then the whole file has to be such that a server can read it.
    has_added: bool,
    written: bool,
}

impl AuthFile {
    /// Reads the entries of a file.
    ///
    /// # Errors
    ///
    /// [`AccessError`] when it is not there, may be changed by others, or has a line that cannot be used.
    pub fn read(path: &Path) -> Result<Vec<Entry>, AccessError> {
        let text = read_guarded(path)?;
        read_entries(text.as_bytes()).map_err(|line| AccessError::BadLine {
            path: path.to_owned(),
            line,
        })
    }

    /// Begins a change of the file, which need not exist. Until it is [written](Self::write) or dropped, other programs
    /// that change it are told that it is busy.
    ///
    /// # Errors
    ///
    /// When the file may be changed by others, and when another program is changing it. Lines that cannot be used are no
    /// error: that is how they can be taken away.
    pub fn change(path: &Path) -> Result<Self, AccessError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".new");
        let lock = PathBuf::from(lock);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock);
        match made {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let path = path.to_owned();
                return Err(AccessError::Busy { path, lock });
            }
            Err(source) => {
                return Err(AccessError::Io {
                    what: "write",
                    path: lock,
                    source,
                });
            }
        }
        let mut file = Self {
            path: path.to_owned(),
            lines: Vec::new(),
            lock,
            has_added: false,
            written: false,
        };
        match read_guarded(path) {
            Ok(text) => file.lines = text.lines().map(str::to_owned).collect(),
            Err(AccessError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(file)
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry) {
        self.has_added = true;
        self.lines.push(write_entry(entry));
    }

    /// Removes the entries that `is_meant` picks, and returns how many these were. Other lines stay as they are.
    pub fn remove(&mut self, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let before = self.lines.len();
        self.lines.retain(|line| {
            let entries = read_entries(line.as_bytes()).unwrap_or_default();
            !entries.iter().any(&is_meant)
        });
        before - self.lines.len()
    }

    /// Puts the changed file in the place of the old one, durably: whoever reads it sees the old one or the new one. It has
    /// the owner and the mode of the old one, so that a server which could read that can read this; a new one only its owner
    /// may read.
    ///
    /// # Errors
    ///
    /// The system's, and [`AccessError::BadLine`] where entries were added and the file has a line that cannot be used, or two
    /// that do not go together; the old file is unchanged then. What is only taken away is taken away also from such a file.
    pub fn write(mut self) -> Result<(), AccessError> {
        let mut text = self.lines.join("\n");
        text.push('\n');
        if self.has_added {
            read_entries(text.as_bytes()).map_err(|line| AccessError::BadLine {
                path: self.path.clone(),
                line,
            })?;
        }
        let mut write = || {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&self.lock)?;
            if let Some(old) = there(&self.path)? {
                let new = file.metadata()?;
                if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                    fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
                file.set_permissions(Permissions::from_mode(old.mode() & 0o7755))?;
            }
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&self.lock, &self.path)?;
            // From here on that name is somebody else's, if anybody's.
            self.written = true;
            let directory = match self.path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            File::open(directory)?.sync_all()
        };
        let written = write();
        written.map_err(AccessError::io("write", &self.path))
    }
}

/// What is known of a file, if it exists.
fn there(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for AuthFile {
    fn drop(&mut self) {
        if !self.written {
            let _ = fs::remove_file(&self.lock);
        }
    }
}

/// Who is known to a running server.
#[derive(Debug)]
pub(crate) struct Access {
    names: Watched,
    known: RwLock<Arc<Known>>,
    /// The lines that `known` was made of.
    entries: Mutex<Vec<Entry>>,
    /// Who is told of changes of these lines.
    audit: Option<Arc<Audit>>,
    /// Who signs OAuth tokens; `None`: such tokens are not believed.
    issuer: Option<Issuer>,
}

impl Access {
    pub(crate) fn open(config: &AccessConfig, audit: Option<Arc<Audit>>) -> Result<Self, AccessError> {
        let (names, entries) = Watched::open(&config.file, AuthFile::read)?;
        Ok(Self {
            names,
            known: RwLock::new(Arc::new(Known::new(entries.clone(), &Known::default()))),
            entries: Mutex::new(entries),
            audit,
            issuer: config.jwt.as_ref().map(Issuer::open).transpose()?,
        })
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read())
    }

    /// Who has this token; without one, who has a certificate with this first name.
    pub(crate) fn authenticate(
        &self,
        token: &Token,
        certificate: Option<&str>,
        now: Moment,
    ) -> Result<Arc<Principal>, Denied> {
        match certificate {
            Some(name) if token.is_empty() => self.known().by_certificate(name, now),
            _ => match (self.known().by_token(token, now), &self.issuer) {
                (Err(Denied::UnknownToken), Some(issuer)) if Issuer::is_for(token) => {
                    self.known().by_signed(&issuer.verify(token, now)?, now)
                }
                (found, _) => found,
            },
        }
    }

    /// What is known now of somebody who was known before.
    pub(crate) fn again(&self, before: &Principal, now: Moment) -> Result<Arc<Principal>, Denied> {
        if let (KnownBy::Signed(signed), Some(issuer)) = (&before.known_by, &self.issuer) {
            issuer.check_key(signed)?;
        }
        self.known().again(before, now)
    }

    /// How often the files of names and of keys were looked at since the start.
    pub(crate) fn looks(&self) -> (u64, u64) {
        (self.names.looks(), self.issuer.as_ref().map_or(0, Issuer::looks))
    }

    /// Reads the file of names again if it has changed. `Ok(true)`: who is known may be others now. After an error those
    /// known before stay known.
    pub(crate) fn reload(&self) -> Result<bool, AccessError> {
        let entries = self.names.again(AuthFile::read)?;
        Ok(entries
            .map(|entries| {
                let mut before = self.entries.lock();
                {
                    let mut known = self.known.write();
                    *known = Arc::new(Known::new(entries.clone(), &known));
                }
                if let Some(audit) = &self.audit {
                    changes(&before, &entries)
                        .iter()
                        .for_each(|change| audit.note_name(change));
                }
                *before = entries;
            })
            .is_some())
    }

    /// Whether keys of OAuth tokens are read from a file.
    pub(crate) fn has_key_file(&self) -> bool {
        self.issuer.as_ref().is_some_and(|issuer| issuer.url().is_none())
    }

    /// Where the keys of OAuth tokens are fetched from, if they are.
    pub(crate) fn key_url(&self) -> Option<Arc<KeyUrl>> {
        self.issuer.as_ref()?.url().cloned()
    }

    /// Fetches the keys of OAuth tokens. `Ok(true)`: others are believed now. After an error those believed before stay so.
    pub(crate) async fn fetch_keys(&self, url: &KeyUrl) -> Result<bool, AccessError> {
        let came = url.fetch().await;
        self.issuer.as_ref().map_or(Ok(false), |issuer| issuer.take(url, came))
    }

    /// Gets the keys of OAuth tokens again if they have changed. `Ok(true)`: others are believed now. After an error those
    /// believed before stay so.
    pub(crate) fn reload_keys(&self) -> Result<bool, AccessError> {
        self.issuer.as_ref().map_or(Ok(false), Issuer::reload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::secret::{TokenDigest, new_token};

    fn entry(name: &str, token: &Token) -> Entry {
        Entry {
            name: name.to_owned(),
            allow: vec!["read:*".parse().expect("a grant")],
            sha256: Some(TokenDigest::of(token)),
            certificate: None,
            subject: None,
            created: None,
            expires: None,
            quota: crate::access::Quota::default(),
        }
    }

    fn open(path: &Path) -> Result<Access, AccessError> {
        let config = AccessConfig {
            file: path.to_owned(),
            jwt: None,
        };
        Access::open(&config, None)
    }

    fn add(path: &Path, name: &str) -> Token {
        let token = new_token().expect("random");
        let mut file = AuthFile::change(path).expect("nobody else changes it");
        file.add(&entry(name, &token));
        file.write().expect("written");
        token
    }

    #[test]
    fn a_running_server_learns_of_each_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let first = add(&path, "one");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let access = open(&path).expect("readable");
        let now = Moment::from_secs(0);
        let who = |token: &Token| access.authenticate(token, None, now).map(|who| who.name.to_string());
        assert_eq!(who(&first).as_deref(), Ok("one"));
        assert!(!access.reload().expect("unchanged"));

        let second = add(&path, "two");
        assert_eq!(who(&second), Err(Denied::UnknownToken), "not read yet");
        assert!(access.reload().expect("readable"));
        assert_eq!(who(&second).as_deref(), Ok("two"));

        let mut file = AuthFile::change(&path).expect("nobody else changes it");
        assert!(matches!(AuthFile::change(&path), Err(AccessError::Busy { .. })));
        assert_eq!(file.remove(|entry| entry.name == "one"), 1);
        file.write().expect("written");
        assert!(access.reload().expect("readable"));
        assert_eq!(who(&first), Err(Denied::UnknownToken), "revoked");
        assert_eq!(who(&second).as_deref(), Ok("two"));
    }

    #[test]
    fn a_second_line_for_a_subject_is_not_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let add = |name: &str| {
            let mut file = AuthFile::change(&path).expect("nobody else changes it");
            file.add(&Entry {
                sha256: None,
                subject: Some("x".to_owned()),
                ..entry(name, &new_token().expect("random"))
            });
            file.write()
        };
        add("one").expect("written");
        let error = add("two").expect_err("a second").to_string();
        assert!(error.contains("line 2"), "{error}");
        assert_eq!(AuthFile::read(&path).expect("as it was").len(), 1);
    }

    /// A file that keeps a server from starting, because somebody wrote it by hand, can be mended by taking lines away.
    #[test]
    fn what_is_too_many_can_be_taken_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let line = |name: &str| format!(r#"{{"name":"{name}","allow":[],"subject":"x"}}"#);
        let text = [line("one"), line("two"), line("three"), "{".to_owned()].join("\n");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        assert!(open(&path).is_err(), "three for a subject");
        let revoke = |name: &str| {
            let mut file = AuthFile::change(&path).expect("nobody else changes it");
            assert_eq!(file.remove(|entry| entry.name == name), 1);
            file.write().expect("written");
        };
        let mut file = AuthFile::change(&path).expect("nobody else changes it");
        file.add(&entry("four", &new_token().expect("random")));
        let error = file.write().expect_err("nothing is added to such a file").to_string();
        assert!(error.contains("line 2"), "{error}");
        revoke("two");
        revoke("three");
        let error = open(&path).expect_err("a line that is no entry").to_string();
        assert!(error.contains("line 2"), "{error}");
        fs::write(&path, line("one")).expect("written");
        open(&path).expect("usable");
    }

    #[test]
    fn a_change_leaves_who_may_read_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let _one = add(&path, "one");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("changed");
        let _two = add(&path, "two");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_that_cannot_be_read_for_the_moment_is_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let _token = add(&path, "one");
        let access = open(&path).expect("readable");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        for _ in 0..2 {
            let error = access.reload().expect_err("a directory");
            assert!(matches!(error, AccessError::Io { .. }), "{error}");
        }
    }

    #[test]
    fn a_change_that_cannot_be_read_lets_nobody_in_and_nobody_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let token = add(&path, "one");
        let access = open(&path).expect("readable");
        fs::write(&path, "{").expect("written");
        let error = access.reload().expect_err("no JSON").to_string();
        assert!(error.contains("tokens, line 1"), "{error}");
        assert!(!access.reload().expect("told already"));
        assert!(access.authenticate(&token, None, Moment::from_secs(0)).is_ok());

        fs::set_permissions(&path, Permissions::from_mode(0o620)).expect("changed");
        let error = open(&path).expect_err("writable by others").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        let error = open(&directory.path().join("none")).expect_err("not there").to_string();
        assert!(error.contains("cannot read"), "{error}");
    }

    #[test]
    fn comments_stay_and_a_change_that_is_not_written_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        fs::write(&path, "# ours\n\n").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        let mut file = AuthFile::change(&path).expect("nobody else changes it");
        file.add(&entry("one", &new_token().expect("random")));
        drop(file);
        assert_eq!(AuthFile::read(&path).expect("readable"), []);
        add(&path, "two");
        let text = fs::read_to_string(&path).expect("there");
        assert!(text.starts_with("# ours\n\n{"), "{text}");
    }
}
