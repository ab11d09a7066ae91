//! What a reader brings: bundles, and their messages as batches.

use std::collections::VecDeque;

use bytes::Bytes;
use sbp_record::{Batch, EncodeError, Positions, RecordsBuilder};
use sbp_tank::{Bundle, Message, Span};
use sbp_types::TimestampMs;

use super::error::{TankError, TankErrorKind};

/// A batch takes no further bundle when it has so many messages.
const ENOUGH_ROWS: usize = 65_536;
/// Or so many bytes.
const ENOUGH_BYTES: usize = 4 << 20;

/// A bundle that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBundle {
    /// The partition that it is of.
    pub partition: u16,
    /// The numbers of its first and last message.
    pub span: Span,
    /// The first number that is wanted: messages before it were read already, or are in front of the start.
    pub from: u64,
    /// The number in front of which reading ends.
    pub until: u64,
    bytes: Bytes,
}

impl ReadBundle {
    /// A bundle of `partition` whose messages have the numbers of `span`, as [`sbp_tank::Numbering`] tells them. Messages
    /// before `from`, and from `until` on, are not wanted.
    #[must_use]
    pub fn new(partition: u16, span: Span, from: u64, until: u64, bytes: Bytes) -> Self {
        Self {
            partition,
            span,
            from,
            until,
            bytes,
        }
    }

    /// Bytes of the bundle as it was received.
    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Calls `take` for each message that is wanted.
    ///
    /// # Errors
    /// The bundle is damaged.
    pub fn for_each(&self, mut take: impl FnMut(Message<'_>)) -> Result<(), TankError> {
        self.try_for_each(|message| {
            take(message);
            Ok(())
        })
    }

    fn try_for_each(&self, mut take: impl FnMut(Message<'_>) -> Result<(), TankError>) -> Result<(), TankError> {
        let damaged = |fault| TankError::of_fault("a bundle", fault).with_sequence(self.span.first);
        let bundle = Bundle::decode(&self.bytes).map_err(damaged)?;
        for message in bundle.messages(self.span.first) {
            let message = message.map_err(damaged)?;
            if (self.from..self.until).contains(&message.sequence) {
                take(message)?;
            }
        }
        Ok(())
    }
}

/// Messages of one partition that were read together.
#[derive(Debug, Clone)]
pub struct ReadBatch {
    /// The partition.
    pub partition: u16,
    /// The messages as records: their offsets are the messages' numbers.
    pub batch: Batch,
    /// How many numbers in front of and between them no message has: compaction has left it out.
    pub skipped: u64,
}

/// Messages of one partition that are being collected.
#[derive(Debug)]
pub(super) struct Collector {
    partition: u16,
    /// The number behind the last message.
    next: u64,
    builder: RecordsBuilder,
    offsets: Vec<i64>,
    skipped: u64,
    full: VecDeque<ReadBatch>,
}

impl Collector {
    /// For messages from the first of this bundle on.
    pub(super) fn new(bundle: &ReadBundle) -> Self {
        Self {
            partition: bundle.partition,
            next: bundle.from,
            builder: RecordsBuilder::new(),
            offsets: Vec::new(),
            skipped: 0,
            full: VecDeque::new(),
        }
    }

    /// The number behind the last message.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a bundle goes into the batch too.
    pub(super) fn wants(&self, bundle: &ReadBundle) -> bool {
        let is_small = self.offsets.len() < ENOUGH_ROWS && self.builder.body_length() < ENOUGH_BYTES;
        bundle.partition == self.partition && self.full.is_empty() && is_small
    }

    /// Copies the messages of a bundle.
    ///
    /// # Errors
    /// The bundle is damaged, or a message does not fit into a batch.
    pub(super) fn add(&mut self, bundle: &ReadBundle) -> Result<(), TankError> {
        bundle.try_for_each(|message| self.push(&message))
    }

    fn push(&mut self, message: &Message<'_>) -> Result<(), TankError> {
        let number = i64::try_from(message.sequence).ok().filter(|number| *number < i64::MAX);
        let number = number.ok_or_else(|| {
            let what = format!(
                "a message has the number {}, and records have those of 63 bits",
                message.sequence
            );
            TankError::new(TankErrorKind::Limit, what).with_sequence(message.sequence)
        })?;
        if let Err(error) = self.add_row(message) {
            let full = match self.offsets.is_empty() {
                true => Err(error),
                false => {
                    self.finish()?;
                    self.add_row(message)
                }
            };
            full.map_err(|error| {
                TankError::new(TankErrorKind::Limit, error.to_string()).with_sequence(message.sequence)
            })?;
        }
        self.offsets.push(number);
        self.skipped = self.skipped.saturating_add(message.sequence.saturating_sub(self.next));
        self.next = message.sequence.saturating_add(1);
        Ok(())
    }

    fn add_row(&mut self, message: &Message<'_>) -> Result<(), EncodeError> {
        let micros = i64::try_from(message.time_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        self.builder.push(Some(message.content), message.key, Some(micros), &[])
    }

    fn finish(&mut self) -> Result<(), TankError> {
        if self.offsets.is_empty() {
            return Ok(());
        }
        let wrong = |error: sbp_record::BatchError| TankError::new(TankErrorKind::Peer, error.to_string());
        let positions = Positions::listed(std::mem::take(&mut self.offsets)).map_err(wrong)?;
        let batch = Batch::from_builder(&mut self.builder, positions, TimestampMs(0)).map_err(wrong)?;
        self.full.push_back(ReadBatch {
            partition: self.partition,
            batch,
            skipped: std::mem::take(&mut self.skipped),
        });
        Ok(())
    }

    /// The batches: mostly one; more where a bundle has more than one batch can; none where no message was wanted.
    ///
    /// # Errors
    /// The numbers of the messages do not rise.
    pub(super) fn into_batches(mut self) -> Result<VecDeque<ReadBatch>, TankError> {
        self.finish()?;
        Ok(self.full)
    }
}

#[cfg(test)]
mod tests {
    use sbp_tank::{BundleHead, Numbering, encode_bundle, encode_sparse_bundle};
    use sbp_types::Offset;

    use super::*;

    fn message(sequence: u64, content: &[u8]) -> Message<'_> {
        Message {
            sequence,
            time_ms: 7,
            key: None,
            content,
        }
    }

    fn read(bytes: Bytes, base: u64, from: u64) -> ReadBundle {
        let head = BundleHead::decode(&bytes).expect("a bundle");
        let span = Numbering::new(Some(base)).number_head(&head).expect("numbers");
        ReadBundle::new(0, span, from, u64::MAX, bytes)
    }

    fn collect(bundles: &[ReadBundle]) -> Result<Vec<ReadBatch>, TankError> {
        let mut collector = Collector::new(bundles.first().expect("at least one"));
        for bundle in bundles {
            assert!(collector.wants(bundle));
            collector.add(bundle)?;
        }
        Ok(collector.into_batches()?.into())
    }

    fn offsets(batch: &ReadBatch) -> Vec<i64> {
        batch.batch.offsets_between(Offset(0), Offset(i64::MAX))
    }

    #[test]
    fn what_is_not_wanted_is_left_out_and_what_is_missing_is_counted() {
        let sparse = [message(10, b"a"), message(13, b"b"), message(20, b"c")];
        let sparse = encode_sparse_bundle(&sparse).expect("a bundle");
        let dense = encode_bundle(&[message(0, b"d"), message(0, b"e")]).expect("a bundle");
        let batches = collect(&[read(sparse, 0, 11), read(dense, 22, 21)]).expect("messages");
        let [batch] = batches.as_slice() else {
            panic!("{} batches", batches.len());
        };
        assert_eq!(offsets(batch), [13, 20, 22, 23]);
        // 11 and 12, 14 to 19, and 21.
        assert_eq!(batch.skipped, 9);
    }

    #[test]
    fn a_bundle_with_more_than_a_batch_can_have_becomes_several() {
        let count = 6_000_000;
        let all = vec![message(0, b""); count];
        let bundle = encode_bundle(&all).expect("a bundle");
        drop(all);
        let batches = collect(&[read(bundle, 1, 1)]).expect("messages");
        assert!(batches.len() > 1);
        let mut next = Offset(1);
        for batch in &batches {
            assert_eq!((batch.batch.base_offset(), batch.skipped), (next, 0));
            next = batch.batch.end_offset();
        }
        assert_eq!(next, Offset(6_000_001));
    }

    #[test]
    fn numbers_that_records_cannot_have_are_told() {
        let bundle = encode_bundle(&[message(0, b"a")]).expect("a bundle");
        let most = u64::try_from(i64::MAX).expect("it fits");
        assert_eq!(
            collect(&[read(bundle.clone(), most - 1, 1)]).map(|batches| batches.len()),
            Ok(1)
        );
        let error = collect(&[read(bundle, most, 1)]).expect_err("beyond");
        assert_eq!((error.kind(), error.sequence()), (TankErrorKind::Limit, Some(most)));
    }

    #[test]
    fn a_batch_takes_bundles_of_its_partition_until_it_is_large() {
        let content = vec![1; ENOUGH_BYTES];
        let large = encode_bundle(&[message(0, &content)]).expect("a bundle");
        let first = read(large.clone(), 1, 1);
        let mut collector = Collector::new(&first);
        let other = ReadBundle {
            partition: 1,
            ..read(large, 2, 2)
        };
        assert!(collector.wants(&first) && !collector.wants(&other));
        collector.add(&first).expect("a message");
        assert!(!collector.wants(&first));
    }
}
