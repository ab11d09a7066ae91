//! The file that tells who changed what, and who was refused: written by one thread, which nobody who is served waits for.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use sbp_frame::OpCode;
use sbp_locks::{Condvar, Mutex};
use sbp_messages::ErrorCode;
use sbp_types::{RangeIndex, ServerId, StreamId};
use serde::Serialize;

use super::error::AccessError;
use super::moment::Moment;
use super::name_change::NameChange;

/// Lines that may wait for the file.
const WAITING: usize = 4_096;
/// How long a line may be written before the disk has it.
const SYNC: Duration = Duration::from_secs(1);
/// How long the end of a server waits for the file to take the last lines: a disk that hangs keeps nothing else from ending.
const LAST_LINES: Duration = Duration::from_secs(5);
/// Bytes of a name that are written; longer ones no stream can have, but a request can.
const NAME_BYTES: usize = 512;

/// Who did something: the same for all that one request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The name in the file of names; `None` where nobody is asked, and for peers that are not known.
    pub(crate) who: Option<Arc<str>>,
    pub(crate) from: SocketAddr,
}

/// What was done, or was not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'a> {
    pub(crate) operation: OpCode,
    pub(crate) stream: Option<StreamId>,
    /// The stream's name when it was asked for; empty: it has none, or it is not known.
    pub(crate) name: &'a str,
    /// The name that it has since, if it was renamed.
    pub(crate) new_name: Option<&'a str>,
    pub(crate) range: Option<RangeIndex>,
    /// The range server that it is about.
    pub(crate) server: Option<ServerId>,
    /// What was asked in particular: `force`, `drain`, `use`.
    pub(crate) how: Option<&'static str>,
    pub(crate) code: ErrorCode,
}

impl Deed<'_> {
    /// A deed of which no more than its kind is known.
    pub(crate) fn new(operation: OpCode, code: ErrorCode) -> Self {
        Self {
            operation,
            stream: None,
            name: "",
            new_name: None,
            range: None,
            server: None,
            how: None,
            code,
        }
    }
}

/// One line of the file.
#[derive(Debug, Serialize)]
struct Line {
    time: Moment,
    who: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<SocketAddr>,
    operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<&'static str>,
    outcome: String,
}

impl Line {
    /// A line about nothing in particular.
    fn new(asker: Option<&Asker>, operation: String, code: ErrorCode) -> Self {
        Self {
            time: SystemTime::now().into(),
            who: asker.and_then(|asker| asker.who.as_deref()).map(str::to_owned),
            from: asker.map(|asker| asker.from),
            operation,
            stream: None,
            name: String::new(),
            new_name: None,
            range: None,
            server: None,
            how: None,
            outcome: match code {
                ErrorCode::NONE => "ok".to_owned(),
                code => code.0.to_string(),
            },
        }
    }
}

/// The line for lines that are not in the file.
#[derive(Debug, Serialize)]
struct Lost {
    time: Moment,
    lost: u64,
}

/// The file, with the thread that writes it.
#[derive(Debug)]
pub(crate) struct Audit {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<Line>,
    /// Lines for which there was no room, all of them after `lines`.
    lost: u64,
    /// Lines that were taken to be written, and are not yet.
    in_hand: u64,
    /// Nothing more is to come. What comes all the same is not written.
    stopped: bool,
    /// The thread has written and synced all that came.
    ended: bool,
}

impl Audit {
    /// Opens the file, which only its owner may read where it is made, and starts its thread.
    pub(crate) fn open(path: &Path) -> Result<Self, AccessError> {
        let writer = Writer::open(path).map_err(AccessError::io("write", path))?;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("sbp-audit".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.write_all(writer)
        });
        let thread = thread.map_err(AccessError::io("start the thread that writes", path))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Has a deed written. Waits for nothing: where too many lines wait for the file, this one is counted as lost.
    pub(crate) fn note(&self, asker: &Asker, deed: &Deed<'_>) {
        self.shared.put(Line {
            stream: deed.stream.map(|stream| stream.0),
            name: cut(deed.name),
            new_name: deed.new_name.map(cut),
            range: deed.range.map(|range| range.0),
            server: deed.server.map(|server| server.0),
            how: deed.how,
            ..Line::new(Some(asker), deed.operation.to_string(), deed.code)
        });
    }

    /// Has written that somebody was not shown what HTTP shows under this path.
    pub(crate) fn note_http(&self, asker: &Asker, path: &str, code: ErrorCode) {
        self.shared.put(Line::new(Some(asker), format!("GET {path}"), code));
    }

    /// Has written how the file of names was changed. Who changed it is not known.
    pub(crate) fn note_name(&self, change: &NameChange) {
        self.shared.put(Line {
            name: cut(&change.name),
            ..Line::new(None, change.what.to_owned(), ErrorCode::NONE)
        });
    }

    /// Ends the thread once all lines are written, and says so where they are not in time.
    pub(crate) fn stop(&self) {
        let missing = self.stop_within(LAST_LINES);
        if missing != 0 {
            let seconds = LAST_LINES.as_secs();
            tracing::error!(
                missing,
                seconds,
                "the disk does not take the last lines of the audit file: they are lost"
            );
        }
    }

    /// Returns how many lines the file has not taken by then, as far as is known; at least one where the disk has not
    /// synced them. The thread is left to itself where there are any.
    fn stop_within(&self, patience: Duration) -> u64 {
        let Some(thread) = self.thread.lock().take() else {
            return 0;
        };
        let mut queue = self.shared.queue.lock();
        queue.stopped = true;
        self.shared.arrived.notify_all();
        let _timed_out = self
            .shared
            .ended
            .wait_while_for(&mut queue, |queue| !queue.ended, patience);
        if !queue.ended && !thread.is_finished() {
            let waiting = u64::try_from(queue.lines.len()).unwrap_or(u64::MAX);
            return (waiting + queue.in_hand + queue.lost).max(1);
        }
        drop(queue);
        if thread.join().is_err() {
            tracing::error!("the thread that writes the audit file panicked");
        }
        0
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn put(&self, line: Line) {
        let mut queue = self.queue.lock();
        if queue.stopped {
            let (operation, outcome) = (line.operation, line.outcome);
            tracing::error!(operation, outcome, "not in the audit file, which has ended");
        } else if queue.lines.len() < WAITING {
            queue.lines.push(line);
            self.arrived.notify_one();
        } else {
            queue.lost += 1;
        }
    }

    /// Takes what waits, or waits for it, but not longer than `until`.
    fn take(&self, until: Option<Instant>) -> Taken {
        let mut queue = self.queue.lock();
        queue.in_hand = 0;
        while queue.lines.is_empty() {
            if queue.stopped {
                return Taken::End;
            }
            let Some(until) = until else {
                self.arrived.wait(&mut queue);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Taken::Nothing;
            }
            let _timed_out =
                self.arrived
                    .wait_while_for(&mut queue, |queue| queue.lines.is_empty() && !queue.stopped, left);
        }
        queue.in_hand = u64::try_from(queue.lines.len()).unwrap_or(u64::MAX);
        Taken::Lines(std::mem::take(&mut queue.lines), std::mem::take(&mut queue.lost))
    }

    fn write_all(&self, mut writer: Writer<File>) {
        loop {
            match self.take(writer.sync_at) {
                Taken::Lines(lines, lost) => writer.write(&lines, lost, Instant::now()),
                Taken::Nothing => {}
                Taken::End => break,
            }
            writer.sync_if_due(Instant::now());
        }
        writer.sync();
        self.queue.lock().ended = true;
        self.ended.notify_all();
    }
}

/// What is to be done with the file.
#[derive(Debug)]
enum Taken {
    /// Lines, and how many there was no room for.
    Lines(Vec<Line>, u64),
    /// Nothing has come by the time at which something else is due.
    Nothing,
    /// Nothing will come.
    End,
}

/// What the lines are written to.
trait Sink: io::Write {
    /// Has the disk take what was written.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        // A pipe or a terminal has nothing to sync.
        if self.metadata()?.is_file() {
            self.sync_data()?;
        }
        Ok(())
    }
}

/// Writes lines, and tells later of those that it could not write.
#[derive(Debug)]
struct Writer<W> {
    file: W,
    /// Lines that the file did not take.
    unwritten: u64,
    /// Whether the file may end within a line.
    torn: bool,
    /// When the disk has to have the lines that were written; `None`: it has all.
    sync_at: Option<Instant>,
}

impl Writer<File> {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .open(path)?;
        let mut last = [b'\n'];
        if let Some(end) = file.metadata()?.len().checked_sub(1) {
            file.read_at(&mut last, end)?;
        }
        Ok(Self {
            file,
            unwritten: 0,
            torn: last != [b'\n'],
            sync_at: None,
        })
    }
}

impl<W: Sink> Writer<W> {
    /// Writes a batch at once.
    fn write(&mut self, lines: &[Line], lost: u64, now: Instant) {
        let mut batch = Vec::with_capacity(lines.len() * 256);
        if self.torn {
            batch.push(b'\n');
        }
        tell_lost(&mut batch, self.unwritten);
        for line in lines {
            tell(&mut batch, line);
        }
        tell_lost(&mut batch, lost);
        match self.file.write_all(&batch).and_then(|()| self.file.flush()) {
            Ok(()) => {
                (self.unwritten, self.torn) = (0, false);
                self.sync_at.get_or_insert(now + SYNC);
            }
            Err(error) => {
                if self.unwritten == 0 {
                    tracing::error!(%error, "the audit file cannot be written; how many lines are lost is told in it later");
                }
                self.unwritten += u64::try_from(lines.len()).unwrap_or(u64::MAX) + lost;
                self.torn = true;
            }
        }
    }

    fn sync_if_due(&mut self, now: Instant) {
        if self.sync_at.is_some_and(|due| due <= now) {
            self.sync();
        }
    }

    /// Has the disk take what was written. If it does not, the lines may still be there, and nobody can tell.
    fn sync(&mut self) {
        if self.sync_at.take().is_some()
            && let Err(error) = self.file.sync()
        {
            tracing::error!(%error, "the disk may not have the last lines of the audit file");
        }
    }
}

fn tell(batch: &mut Vec<u8>, line: &impl Serialize) {
    match serde_json::to_writer(&mut *batch, line) {
        Ok(()) => batch.push(b'\n'),
        Err(error) => tracing::error!(%error, "a line for the audit file cannot be written as JSON"),
    }
}

fn tell_lost(batch: &mut Vec<u8>, lost: u64) {
    if lost != 0 {
        let time = SystemTime::now().into();
        tell(batch, &Lost { time, lost });
    }
}

/// The beginning of a name, as much of it as is written.
fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stream: usize) -> Line {
        Line {
            time: Moment::from_secs(0),
            who: None,
            from: Some(SocketAddr::from(([127, 0, 0, 1], 1))),
            operation: "APPEND".to_owned(),
            stream: i64::try_from(stream).ok(),
            name: String::new(),
            new_name: None,
            range: None,
            server: None,
            how: None,
            outcome: "ok".to_owned(),
        }
    }

    fn told(written: &[u8]) -> Vec<serde_json::Value> {
        let text = std::str::from_utf8(written).expect("text");
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// A file on a disk that is full when a test says so: then it takes some bytes and no more.
    #[derive(Debug, Default)]
    struct Disk {
        written: Vec<u8>,
        full: bool,
        syncs: u32,
    }

    impl Sink for Disk {
        fn sync(&mut self) -> io::Result<()> {
            self.syncs += 1;
            Ok(())
        }
    }

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.full {
                self.written.extend_from_slice(&bytes[..5]);
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn on_a_disk() -> Writer<Disk> {
        Writer {
            file: Disk::default(),
            unwritten: 0,
            torn: false,
            sync_at: None,
        }
    }

    fn deed() -> (Asker, Deed<'static>) {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        (
            Asker { who: None, from },
            Deed::new(OpCode::APPEND, ErrorCode::FORBIDDEN),
        )
    }

    /// A pipe that nobody reads takes some lines, and then none: as a disk that hangs.
    #[test]
    fn a_disk_that_hangs_does_not_hold_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let audit = Audit::open(&path).expect("it can be opened");
        let (asker, deed) = deed();
        for _ in 0..2 * WAITING {
            audit.note(&asker, &deed);
        }
        let began = Instant::now();
        let missing = audit.stop_within(Duration::from_millis(100));
        assert!(missing > 1_000, "{missing} lines");
        assert!(began.elapsed() < Duration::from_secs(10), "it does not wait for ever");
        assert_eq!(audit.stop_within(Duration::from_secs(60)), 0, "told once");
    }

    #[test]
    fn all_lines_are_there_at_the_end_and_none_after_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit");
        let audit = Audit::open(&path).expect("it can be opened");
        let (asker, deed) = deed();
        for _ in 0..100 {
            audit.note(&asker, &deed);
        }
        assert_eq!(audit.stop_within(LAST_LINES), 0);
        audit.note(&asker, &deed);
        assert_eq!(told(&std::fs::read(&path).expect("there")).len(), 100);
        assert!(audit.shared.queue.lock().lines.is_empty(), "nobody would take it");
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_told_after_those_that_waited() {
        let shared = Shared::default();
        for number in 0..WAITING + 3 {
            shared.put(line(number));
        }
        let Taken::Lines(lines, lost) = shared.take(None) else {
            panic!("no lines")
        };
        assert_eq!((lines.len(), lost), (WAITING, 3));
        let now = Instant::now();
        let mut writer = on_a_disk();
        writer.write(&lines, lost, now);
        let told = told(&writer.file.written);
        assert_eq!(told.len(), WAITING + 1);
        assert_eq!(told[WAITING]["lost"], 3);
        shared.put(line(0));
        assert!(matches!(shared.take(None), Taken::Lines(_, 0)), "told once");
        assert!(matches!(shared.take(Some(now)), Taken::Nothing));
        shared.queue.lock().stopped = true;
        assert!(matches!(shared.take(None), Taken::End));
    }

    #[test]
    fn lines_that_a_full_disk_did_not_take_are_counted_and_told_when_it_takes_some_again() {
        let now = Instant::now();
        let mut writer = on_a_disk();
        writer.write(&[line(1)], 0, now);
        let before = writer.file.written.len();
        writer.file.full = true;
        writer.write(&[line(2), line(3)], 4, now);
        writer.write(&[line(4)], 0, now);
        writer.file.full = false;
        let whole = writer.file.written.len();
        writer.write(&[line(5)], 0, now);
        assert_eq!(writer.file.written[whole], b'\n', "what is torn ends");
        let told = told(&[&writer.file.written[..before], &writer.file.written[whole..]].concat());
        let shown: Vec<_> = told
            .iter()
            .map(|line| (line["stream"].as_i64(), line["lost"].as_u64()))
            .collect();
        assert_eq!(shown, [(Some(1), None), (None, Some(7)), (Some(5), None)]);
    }

    #[test]
    fn the_disk_has_each_line_a_second_later_and_is_asked_no_more_often() {
        let mut writer = on_a_disk();
        let begin = Instant::now();
        let mut syncs = Vec::new();
        for tenth in 0..25 {
            let now = begin + SYNC * tenth / 10;
            if tenth < 15 {
                writer.write(&[line(1)], 0, now);
            }
            writer.sync_if_due(now);
            syncs.push(writer.file.syncs);
        }
        let changes: Vec<_> = (1..syncs.len()).filter(|at| syncs[*at] != syncs[at - 1]).collect();
        assert_eq!(changes, [10, 21]);
        writer.write(&[line(2)], 0, begin);
        writer.sync();
        writer.sync();
        assert_eq!(writer.file.syncs, 3, "at the end, if there is anything");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let long = "ä".repeat(NAME_BYTES);
        assert_eq!(cut(&format!("x{long}")).len(), NAME_BYTES - 1);
        assert_eq!(cut("short"), "short");
    }
}
