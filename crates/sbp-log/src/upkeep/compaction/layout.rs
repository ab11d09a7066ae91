//! Decides where records go in a compacted file, from their lengths alone.

use std::ops::Range;

use crate::format::block_up;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;

/// The records of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLayout {
    /// The indexes of the records.
    pub(crate) records: Range<usize>,
    pub(crate) position: u64,
    /// The length of header and records.
    pub(crate) length: u64,
}

impl GroupLayout {
    /// The position of the next group, or of the footer.
    pub(crate) fn end(&self) -> u64 {
        self.position + block_up(self.length)
    }
}

/// Divides batches of these lengths into groups of about `limit` bytes, but into at most `most` groups: larger ones if
/// needed.
pub(crate) fn lay_out(lengths: &[u32], limit: u64, most: u64) -> Vec<GroupLayout> {
    let mut limit = limit.max(1);
    loop {
        let groups = lay_out_once(lengths, limit);
        if groups.len() as u64 <= most.max(1) {
            return groups;
        }
        limit = limit.saturating_mul(2);
    }
}

fn lay_out_once(lengths: &[u32], limit: u64) -> Vec<GroupLayout> {
    let mut groups: Vec<GroupLayout> = Vec::new();
    for (number, length) in lengths.iter().enumerate() {
        let stored = RecordHead::stored_len(*length as usize) as u64;
        match groups.last_mut() {
            Some(group) if group.length + stored <= limit => {
                group.length += stored;
                group.records.end = number + 1;
            }
            before => {
                let position = before.map_or(FIRST_GROUP, |group| group.end());
                groups.push(GroupLayout {
                    records: number..number + 1,
                    position,
                    length: GroupHeader::LEN as u64 + stored,
                });
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::lay_out;

    #[test]
    fn groups_follow_each_other_and_are_not_too_many() {
        let lengths = [100, 5_000, 20_000, 1, 1, 1, 9_000];
        for most in 1..8 {
            let groups = lay_out(&lengths, 8_192, most);
            assert!(groups.len() as u64 <= most, "{groups:?}");
            let mut next = (0, 4_096);
            for group in &groups {
                assert_eq!((group.records.start, group.position), next);
                next = (group.records.end, group.end());
            }
            assert_eq!(next.0, lengths.len());
        }
        assert_eq!(lay_out(&lengths, 8_192, 9).len(), 4);
        assert!(lay_out(&[], 8_192, 9).is_empty());
    }
}
