//! The hot tail: the newest groups, kept in memory for readers.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::BatchBytes;
use crate::format::block_up;
use crate::format::record::RecordHead;

/// One written group in memory.
#[derive(Debug)]
pub(crate) struct HotGroup {
    pub(crate) segment: u64,
    pub(crate) position: u64,
    pub(crate) length: u32,
    /// Everything after the group's header.
    pub(crate) parts: Vec<GroupPart>,
}

/// A piece of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupPart {
    /// Its position in the group.
    pub(crate) at: u32,
    pub(crate) bytes: Bytes,
}

/// A bounded ring of groups, oldest first.
#[derive(Debug)]
pub(crate) struct HotTail {
    groups: VecDeque<HotGroup>,
    charged: u64,
    limit: u64,
}

impl HotTail {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            charged: 0,
            limit: limit as u64,
        }
    }

    /// Adds the newest group and removes the oldest ones above the limit; readers keep what they hold of them.
    pub(crate) fn push(&mut self, group: HotGroup, evicted: &mut Vec<HotGroup>) {
        if self.limit == 0 {
            evicted.push(group);
            return;
        }
        self.charged += block_up(u64::from(group.length));
        self.groups.push_back(group);
        while self.charged > self.limit && self.groups.len() > 1 {
            if let Some(oldest) = self.groups.pop_front() {
                self.charged -= block_up(u64::from(oldest.length));
                evicted.push(oldest);
            }
        }
    }

    /// The bytes at a position of a segment, if they are in memory.
    pub(crate) fn find(&self, segment: u64, position: u64, length: usize) -> Option<BatchBytes> {
        let at = self
            .groups
            .partition_point(|group| (group.segment, group.position) <= (segment, position));
        let group = self.groups.get(at.checked_sub(1)?)?;
        if group.segment != segment {
            return None;
        }
        group.slice(usize::try_from(position - group.position).ok()?, length)
    }
}

impl HotGroup {
    /// The bytes of a record whose head is at this position of the segment.
    pub(crate) fn bytes_of(&self, record: &RecordHead, position: u32) -> BatchBytes {
        let batch = u64::from(position) + RecordHead::LEN as u64 - self.position;
        let batch = usize::try_from(batch).ok();
        let bytes = batch.and_then(|batch| self.slice(batch, record.batch_len as usize));
        bytes.unwrap_or_default()
    }

    /// Bytes of the group; `None` if it does not have them.
    pub(crate) fn slice(&self, from: usize, length: usize) -> Option<BatchBytes> {
        let end = from.checked_add(length)?;
        if end > self.length as usize {
            return None;
        }
        let mut result = BatchBytes::default();
        let first = self
            .parts
            .partition_point(|part| part.at as usize <= from)
            .checked_sub(1)?;
        for part in self.parts.get(first..)? {
            let start = part.at as usize;
            if start >= end {
                break;
            }
            let low = from.max(start) - start;
            let high = end.min(start + part.bytes.len()) - start;
            result.push(part.bytes.slice(low..high));
        }
        Some(result)
    }
}
