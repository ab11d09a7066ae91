//! What the owner says of ranges with copies on other servers.

use bytes::Bytes;
use sbp_types::{Position, RangeKey, StreamId};

use super::Log;
use crate::entry::MOST_PART_BYTES;
use crate::format::parts;
use crate::state::shared::State;
use crate::{WriterKey, WriterState};

impl<T: Send + 'static> Log<T> {
    /// Everything of a range before this place is confirmed: what is synced of it counts for its writers. Cheap, to be called
    /// often; an earlier place changes nothing. A restart forgets it, and takes all but a range's last 1,024 batches for
    /// confirmed, so no more may be unconfirmed.
    pub fn confirm(&self, key: RangeKey, confirmed: Position) {
        self.confirm_all([(key, confirmed)]);
    }

    /// As [`confirm`](Self::confirm), for many ranges at once.
    pub fn confirm_all(&self, confirmed: impl IntoIterator<Item = (RangeKey, Position)>) {
        let state = &mut *self.shared.state.write();
        let State {
            index, writers, folds, ..
        } = state;
        for (key, confirmed) in confirmed {
            if index.get(key).is_some_and(|range| range.known) {
                folds.confirm(writers, key, confirmed);
            }
        }
    }

    /// The range ends here, for all servers that have a copy: what this log has behind it is not read any more, does not
    /// count as its end, and counts for no writer; everything before counts. What is missing can still be appended, up to the
    /// end. Remembered only by the next checkpoint, so the owner repeats the call after a restart.
    pub fn end_range(&self, key: RangeKey, end: Position) {
        self.queue.end_range(key, end, || {
            let state = &mut *self.shared.state.write();
            let State {
                index, writers, folds, ..
            } = state;
            let range = index.get_or_insert(key);
            range.end_at(end);
            folds.end(writers, key, end);
            if range.known && range.end_position() >= end {
                folds.forget(key);
            }
            state.reclaimable = true;
        });
    }

    /// What is known of all writers of a stream, as the parts of the entry that begins its next range: at least one, each at
    /// most 4 MiB. [`writers_in`] reads them.
    #[must_use]
    pub fn writers_of(&self, stream: StreamId) -> Vec<Bytes> {
        let writers = self.shared.state.read().writers.of(stream);
        let most_bytes = self.shared.config.writers_part_bytes.min(MOST_PART_BYTES);
        parts::encode(&writers, most_bytes)
    }

    /// Where the first entry stands that is needed of a range, also if it is damaged, or where its next one will; `None` if nothing
    /// is known of it.
    #[must_use]
    pub fn first_position(&self, key: RangeKey) -> Option<Position> {
        let state = self.shared.state.read();
        let range = state.index.get(key).filter(|range| range.known)?;
        let mark = range.marks.first().map(|mark| mark.position);
        let batch = range.runs.first().map(|run| run.first);
        let damaged = range.damage.first().map(|(from, _)| *from);
        let record = batch.into_iter().chain(damaged).min().map(Position::start);
        Some(mark.into_iter().chain(record).min().unwrap_or(range.end_position()))
    }

    /// Whether the ends that the log found at its start are those that it had. Not so if groups were only handed to the
    /// operating system and the log was not shut down: the machine may have lost the last ones. Ranges with copies on other
    /// servers then have no [proven](crate::RangeEnd::proven) end until the owner tells them one
    /// ([`end_range`](Self::end_range)), for as many starts as that takes; of ranges that the log does not list the owner
    /// has to see to that.
    #[must_use]
    pub fn knows_its_ends(&self) -> bool {
        self.shared.knows_its_ends
    }
}

/// The writers in one part of the state of a stream's writers; `None` if it is none.
#[must_use]
pub fn writers_in(stream: StreamId, part: &[u8]) -> Option<Vec<(WriterKey, WriterState)>> {
    parts::parse(stream, part)
}
