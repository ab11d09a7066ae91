use sbp_types::{Offset, StreamId};

use super::super::record::{CommitRecord, CommittedPlace, Holder, Places};
use super::{AppendEnd, Found, Standing, Step, TakenOver};

fn record(standing: &Standing, commit: u64, stream: i64, next: i64) -> CommitRecord {
    let mut places = standing.committed().clone();
    let place = CommittedPlace {
        stream: StreamId(stream),
        identity: None,
        name: String::new(),
        next: Offset(next),
    };
    places.insert(StreamId(stream), place);
    CommitRecord {
        holder: standing.holder().clone(),
        commit,
        places,
    }
}

fn fresh() -> Standing {
    Standing::new(Holder::new(), Offset(4), Places::new())
}

#[test]
fn a_commit_that_is_stored_moves_on_by_one() {
    let mut standing = fresh();
    assert_eq!(standing.begin(), Step::Append { at: Offset(4) });
    let first = record(&standing, 1, 3, 12);
    assert_eq!(standing.handle_append(&first, AppendEnd::Stored), Step::Done);
    assert_eq!(standing.committed(), &first.places);
    assert_eq!(standing.begin(), Step::Append { at: Offset(5) });
}

#[test]
fn the_second_of_two_holders_is_refused_for_good() {
    let (mut first, mut second) = (fresh(), fresh());
    let (won, lost) = (record(&first, 1, 3, 12), record(&second, 1, 3, 99));
    assert_eq!(first.handle_append(&won, AppendEnd::Stored), Step::Done);
    let look = second.handle_append(&lost, AppendEnd::Refused);
    let (from, expected) = (Offset(4), true);
    assert_eq!(look, Step::Look { from, expected });
    let (holder, at) = (won.holder.clone(), Offset(4));
    let taken = Step::TakenOver(TakenOver::By { holder, at });
    assert_eq!(second.handle_look(1, Found::Records(vec![won])), taken);
    assert_eq!(second.begin(), taken);
    // Nothing that is heard later brings it back.
    assert_eq!(second.handle_append(&lost, AppendEnd::Stored), taken);
    assert_eq!(second.handle_look(1, Found::Nothing), taken);
    assert!(second.committed().is_empty());
}

#[test]
fn a_commit_in_doubt_is_found_or_sent_again() {
    let mut standing = fresh();
    let doubtful = record(&standing, 1, 3, 12);
    let look = standing.handle_append(&doubtful, AppendEnd::Unknown);
    let (from, expected) = (Offset(4), false);
    assert_eq!(look, Step::Look { from, expected });
    assert!(standing.doubts(1) && !standing.doubts(2));
    assert_eq!(standing.handle_look(1, Found::Nothing), Step::Append { at: Offset(4) });
    assert!(standing.committed().is_empty());
    assert_eq!(
        standing.handle_look(1, Found::Records(vec![doubtful.clone()])),
        Step::Done
    );
    assert_eq!(standing.committed(), &doubtful.places);
    assert!(!standing.doubts(1));
}

#[test]
fn the_next_commit_builds_on_one_that_was_in_doubt_if_it_was_stored() {
    let mut standing = fresh();
    let doubtful = record(&standing, 1, 3, 12);
    standing.handle_append(&doubtful, AppendEnd::Unknown);
    // It was given up then; now the second is refused, because the first is there.
    let second = record(&standing, 2, 7, 1);
    standing.handle_append(&second, AppendEnd::Refused);
    let step = standing.handle_look(2, Found::Records(vec![doubtful]));
    assert_eq!(step, Step::Append { at: Offset(5) });
    let second = record(&standing, 2, 7, 1);
    assert_eq!(second.places.len(), 2, "what the first said is not taken back");
    assert_eq!(standing.handle_append(&second, AppendEnd::Stored), Step::Done);
}

#[test]
fn a_commit_that_others_built_on_was_made() {
    let mut standing = fresh();
    let doubtful = record(&standing, 1, 3, 12);
    standing.handle_append(&doubtful, AppendEnd::Unknown);
    let others = record(&fresh(), 1, 7, 1);
    let (holder, at) = (others.holder.clone(), Offset(5));
    let found = Found::Records(vec![doubtful.clone(), others]);
    assert_eq!(standing.handle_look(1, found), Step::Done);
    assert_eq!(standing.committed(), &doubtful.places);
    assert_eq!(standing.begin(), Step::TakenOver(TakenOver::By { holder, at }));
}

#[test]
fn what_became_of_a_commit_that_was_trimmed_nobody_tells() {
    let mut standing = fresh();
    let doubtful = record(&standing, 1, 3, 12);
    standing.handle_append(&doubtful, AppendEnd::Unknown);
    let (next, start) = (Offset(4), Offset(9));
    let taken = TakenOver::LongAgo { next, start };
    assert_eq!(
        standing.handle_look(1, Found::Trimmed { start }),
        Step::Untold(taken.clone())
    );
    assert_eq!(standing.begin(), Step::TakenOver(taken));
}

#[test]
fn a_stream_that_is_not_what_it_was_is_lost() {
    let (next, start, end) = (Offset(4), Offset(9), Offset(2));
    for (found, taken) in [
        (Found::Trimmed { start }, TakenOver::LongAgo { next, start }),
        (Found::Short { end }, TakenOver::Undone { next, end }),
    ] {
        let mut standing = fresh();
        assert_eq!(standing.handle_look(1, found), Step::TakenOver(taken));
    }
}

/// An append on its way: the record and the offset it must get.
type Sent = (CommitRecord, Offset);

/// A stream whose server syncs late, loses what it has not synced, and is reached by appends late, or not, or unheard.
struct World {
    random: fastrand::Rng,
    log: Vec<CommitRecord>,
    /// Records before this place are synced: they can be read, and are never lost.
    synced: usize,
    underway: Vec<Sent>,
    /// The first offset that is kept.
    start: usize,
    /// Every commit that was told to be stored.
    told: Vec<(Holder, u64)>,
    /// Every commit that was told not to be.
    refused: Vec<(Holder, u64)>,
}

impl World {
    fn store(&mut self, sent: Sent) -> AppendEnd {
        if sent.1 == offset(self.log.len()) {
            self.log.push(sent.0);
            AppendEnd::Stored
        } else {
            AppendEnd::Refused
        }
    }

    fn append(&mut self, sent: Sent) -> AppendEnd {
        match self.random.u8(..8) {
            0 => AppendEnd::Unknown,
            1 => {
                self.underway.push(sent);
                AppendEnd::Unknown
            }
            2 => {
                self.store(sent);
                AppendEnd::Unknown
            }
            _ => {
                let end = self.store(sent);
                if end == AppendEnd::Stored {
                    self.synced = self.log.len();
                }
                end
            }
        }
    }

    /// Whatever happens between two steps of a holder.
    fn go_on(&mut self) {
        for _ in 0..self.random.u8(..5) {
            self.happen();
        }
    }

    fn happen(&mut self) {
        match self.random.u8(..12) {
            0 | 1 if !self.underway.is_empty() => {
                let place = self.random.usize(..self.underway.len());
                let late = self.underway.swap_remove(place);
                self.store(late);
            }
            2 | 3 => self.synced = self.log.len(),
            4 => self.log.truncate(self.synced),
            5 => self.start = self.synced.saturating_sub(1),
            6 => {
                // Somebody else opens the cursor and commits, in the middle of a commit.
                let other = self.open();
                let sent = (record(&other, 1, 2, 1), offset(self.synced));
                if self.store(sent) == AppendEnd::Stored {
                    self.synced = self.log.len();
                }
            }
            _ => {}
        }
    }

    fn look(&self, from: Offset) -> Found {
        let from = usize::try_from(from.0).expect("offsets are not negative");
        if from < self.start {
            let start = offset(self.start);
            return Found::Trimmed { start };
        }
        match self.log.get(from..self.synced) {
            None => Found::Short {
                end: offset(self.synced),
            },
            Some([]) => Found::Nothing,
            Some(records) => Found::Records(records.to_vec()),
        }
    }

    /// A new holder, which reads the last record that is synced.
    fn open(&self) -> Standing {
        let committed = self.synced.checked_sub(1).and_then(|last| self.log.get(last));
        let committed = committed.map(|record| record.places.clone()).unwrap_or_default();
        Standing::new(Holder::new(), offset(self.synced), committed)
    }

    /// A commit of one stream's place, until it is stored, taken, or given up.
    fn commit(&mut self, standing: &mut Standing, commit: u64, stream: i64) -> bool {
        let mut step = standing.begin();
        for _ in 0..self.random.usize(1..20) {
            self.go_on();
            step = match step {
                Step::Append { at } => {
                    let next = i64::try_from(commit).expect("few commits");
                    let record = record(standing, commit, stream, next);
                    let end = self.append((record.clone(), at));
                    standing.handle_append(&record, end)
                }
                Step::Look { from, .. } => {
                    let found = self.look(from);
                    standing.handle_look(commit, found)
                }
                Step::Done => {
                    self.told.push((standing.holder().clone(), commit));
                    return true;
                }
                Step::TakenOver(_) => {
                    self.refused.push((standing.holder().clone(), commit));
                    return false;
                }
                Step::Untold(_) => return false,
            };
        }
        true
    }

    fn check(&self) {
        let at = |wanted: &(Holder, u64)| {
            let found = self
                .log
                .iter()
                .filter(|record| (&record.holder, record.commit) == (&wanted.0, wanted.1));
            found.count()
        };
        assert!(
            self.told.iter().all(|told| at(told) == 1),
            "what was told to be stored is, once"
        );
        assert!(
            self.refused.iter().all(|told| at(told) == 0),
            "what was told not to be stored is not"
        );
        let mut gone: Vec<&Holder> = Vec::new();
        for pair in self.log.windows(2) {
            let [before, record] = pair else { continue };
            assert!(
                !gone.contains(&&record.holder),
                "a holder committed after another had taken over"
            );
            if before.holder == record.holder {
                assert!(before.commit < record.commit);
            } else {
                gone.push(&before.holder);
            }
            let others = |places: &Places| {
                let mut places = places.clone();
                places.retain(|stream, _| before.places.get(stream) != record.places.get(stream));
                places
            };
            assert!(
                others(&record.places).len() <= 1 && before.places.keys().all(|old| record.places.contains_key(old)),
                "a commit changes its own stream's place and keeps the others"
            );
        }
    }
}

fn offset(place: usize) -> Offset {
    Offset(i64::try_from(place).expect("short logs"))
}

#[test]
fn whatever_happens_holders_never_alternate_and_nothing_told_is_lost() {
    let (mut stored, mut taken) = (0, 0);
    for seed in 0..3_000 {
        let mut world = World {
            random: fastrand::Rng::with_seed(seed),
            log: Vec::new(),
            synced: 0,
            underway: Vec::new(),
            start: 0,
            told: Vec::new(),
            refused: Vec::new(),
        };
        let mut holders: Vec<_> = (0..3).map(|_| world.open()).collect();
        for number in 1..30 {
            let which = world.random.usize(..holders.len());
            let stream = world.random.i64(1..4);
            let mut holder = holders.swap_remove(which);
            if !world.commit(&mut holder, number, stream) || world.random.u8(..10) == 0 {
                taken += 1;
                holder = world.open();
            }
            holders.push(holder);
        }
        stored += world.told.len();
        world.check();
    }
    assert!(stored > 10_000 && taken > 10_000, "{stored} stored, {taken} taken");
}
