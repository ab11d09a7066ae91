//! Chooses which files to compact, from their sizes alone.

use crate::format::BLOCK;

/// A file, with how much of it is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) number: u64,
    pub(crate) nature: Nature,
    pub(crate) file_bytes: u64,
    pub(crate) live_bytes: u64,
    /// Whether it has records that must leave the disk, however much of it is needed.
    pub(crate) must_go: bool,
}

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A sealed segment, with batches in the order of their arrival.
    Chain,
    /// A compacted file, with batches in the order of their ranges.
    Compacted,
    /// A file that must stay as it is: it is being written, is damaged, or cannot be read.
    Fixed,
}

/// The limits for choosing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// A sealed segment is compacted when at most this percentage of it is needed.
    pub(crate) percent: u64,
    /// The most bytes to put into one file.
    pub(crate) largest: u64,
}

/// The same limit for compacted files. Their order is right already, so they are rewritten only to free space.
const COMPACTED_PERCENT: u64 = 50;

/// The bytes of a file's header, and of the padding after its groups and footer.
const FRAME_BYTES: u64 = 3 * BLOCK;

impl Candidate {
    fn is_dead(&self) -> bool {
        self.live_bytes == 0 && self.nature != Nature::Fixed
    }

    fn is_wasteful(&self, policy: &Policy) -> bool {
        let (percent, needed) = match self.nature {
            Nature::Chain => (policy.percent, self.live_bytes),
            // Counts header, padding and footer, so that a file is not rewritten without getting smaller.
            Nature::Compacted => (
                policy.percent.min(COMPACTED_PERCENT),
                FRAME_BYTES + self.live_bytes + self.live_bytes / 4,
            ),
            Nature::Fixed => return false,
        };
        self.must_go || percent > 0 && needed.saturating_mul(100) <= self.file_bytes.saturating_mul(percent)
    }
}

/// Returns the first neighbouring files that are worth being compacted into one, in their order; empty if there are
/// none.
///
/// Only neighbours are put together, because then no range has a gap in the new file. Compacted files beside them are
/// included as long as that does not write more than it frees, so that a byte is rewritten only a few times.
pub(crate) fn choose(files: &[Candidate], policy: &Policy) -> Vec<u64> {
    let mut rest = files;
    while let Some((first, behind)) = rest.split_first() {
        let mut chosen = neighbours(*first, behind, policy);
        while !chosen.is_empty() && !is_worth(&chosen, policy) {
            chosen.pop();
        }
        if !chosen.is_empty() {
            return chosen.iter().map(|file| file.number).collect();
        }
        rest = behind;
    }
    Vec::new()
}

fn neighbours(first: Candidate, behind: &[Candidate], policy: &Policy) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    let mut total = 0u64;
    for file in std::iter::once(&first).chain(behind) {
        if file.is_dead() {
            // A file in which nothing is needed is removed without compaction, so its neighbours can still be put
            // together.
            continue;
        }
        total = total.saturating_add(file.live_bytes);
        let fits = total <= policy.largest || chosen.is_empty();
        let along = file.is_wasteful(policy) || file.nature == Nature::Compacted;
        if !fits || !along {
            break;
        }
        chosen.push(*file);
    }
    chosen
}

fn is_worth(chosen: &[Candidate], policy: &Policy) -> bool {
    let (wasteful, carried): (Vec<_>, Vec<_>) = chosen.iter().partition(|file| file.is_wasteful(policy));
    let sum = |files: &[Candidate], bytes: fn(&Candidate) -> u64| files.iter().map(bytes).sum::<u64>();
    !wasteful.is_empty() && sum(&carried, |file| file.live_bytes) <= sum(&wasteful, |file| file.file_bytes)
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Nature, Policy, choose};

    const FIXED: Nature = Nature::Fixed;
    const CHAIN: Nature = Nature::Chain;
    const COMPACTED: Nature = Nature::Compacted;

    /// Files numbered from 1: nature, size, what is needed of it, in MiB.
    fn chosen(percent: u64, files: &[(Nature, u64, u64)]) -> Vec<u64> {
        chosen_with(percent, files, &[])
    }

    /// The same, with files that have something that must go.
    fn chosen_with(percent: u64, files: &[(Nature, u64, u64)], must_go: &[u64]) -> Vec<u64> {
        let number = (1..).zip(files);
        let files: Vec<_> = number
            .map(|(number, (nature, file_bytes, live_bytes))| Candidate {
                number,
                nature: *nature,
                file_bytes: file_bytes << 20,
                live_bytes: live_bytes << 20,
                must_go: must_go.contains(&number),
            })
            .collect();
        choose(
            &files,
            &Policy {
                percent,
                largest: 100 << 20,
            },
        )
    }

    #[test]
    fn what_is_mostly_dead_goes_with_its_neighbours() {
        assert_eq!(chosen(50, &[]), []);
        assert_eq!(chosen(50, &[(CHAIN, 100, 90), (CHAIN, 100, 51)]), []);
        assert_eq!(chosen(50, &[(CHAIN, 100, 90), (CHAIN, 100, 50), (CHAIN, 100, 60)]), [2]);
        assert_eq!(
            chosen(50, &[(CHAIN, 100, 20), (CHAIN, 100, 30), (CHAIN, 100, 40)]),
            [1, 2, 3]
        );
        assert_eq!(
            chosen(50, &[(CHAIN, 100, 50), (CHAIN, 100, 50), (CHAIN, 100, 1)]),
            [1, 2],
            "one file's worth"
        );
        assert_eq!(
            chosen(50, &[(CHAIN, 100, 20), (CHAIN, 100, 0), (CHAIN, 100, 40)]),
            [1, 3],
            "the dead separate nobody"
        );
        assert_eq!(chosen(50, &[(CHAIN, 100, 20), (FIXED, 100, 0), (CHAIN, 100, 40)]), [1]);
        assert_eq!(chosen(50, &[(FIXED, 100, 1)]), []);
        assert_eq!(chosen(50, &[(CHAIN, 100, 0)]), []);
    }

    #[test]
    fn remains_are_taken_along_but_not_for_ever() {
        assert_eq!(
            chosen(50, &[(COMPACTED, 40, 40), (COMPACTED, 40, 40)]),
            [],
            "nothing to win"
        );
        assert_eq!(chosen(50, &[(COMPACTED, 40, 20)]), [], "hardly anything");
        assert_eq!(chosen(50, &[(COMPACTED, 40, 15)]), [1]);
        assert_eq!(chosen(50, &[(COMPACTED, 40, 40), (CHAIN, 100, 10)]), [1, 2]);
        assert_eq!(chosen(50, &[(CHAIN, 100, 10), (COMPACTED, 40, 40)]), [1, 2]);
        assert_eq!(
            chosen(50, &[(COMPACTED, 70, 70), (CHAIN, 60, 10)]),
            [2],
            "more carried than won"
        );
        assert_eq!(chosen(50, &[(CHAIN, 60, 10), (COMPACTED, 70, 70)]), [1]);
    }

    #[test]
    fn what_must_go_goes_from_any_file_that_can_be_rewritten() {
        let full = [(CHAIN, 100, 100), (COMPACTED, 100, 100), (CHAIN, 100, 100)];
        assert_eq!(chosen_with(50, &full, &[]), []);
        for number in 1..=3 {
            assert_eq!(chosen_with(50, &full, &[number]), [number]);
            assert_eq!(
                chosen_with(0, &full, &[number]),
                [number],
                "also where nothing else is rewritten"
            );
        }
        assert_eq!(
            chosen_with(50, &[(FIXED, 100, 0)], &[1]),
            [],
            "but not from one that must stay"
        );
    }

    #[test]
    fn everything_is_put_in_order_once_or_nothing_is() {
        assert_eq!(chosen(0, &[(CHAIN, 100, 1)]), []);
        assert_eq!(chosen(100, &[(CHAIN, 100, 100), (CHAIN, 100, 100)]), [1]);
        assert_eq!(chosen(100, &[(COMPACTED, 100, 100), (COMPACTED, 100, 51)]), []);
        assert_eq!(
            chosen(100, &[(CHAIN, 200, 150)]),
            [1],
            "a file larger than others are now"
        );
    }
}
