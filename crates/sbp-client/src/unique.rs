//! Names that nobody else makes up.

use sbp_types::WriterId;

/// A writer's name that no other call returns, in this process or any other.
#[must_use]
pub fn unique_writer_id() -> WriterId {
    let (high, low) = unique();
    WriterId { high, low }
}

/// 128 bits that no other call returns, in this process or any other.
///
/// A forked child begins with its parent's random state, so chance alone would give both the same name: the process id
/// and the clock are part of it.
pub(crate) fn unique() -> (u64, u64) {
    let process = u64::from(std::process::id());
    let now = crate::clock::wall_clock().0.unsigned_abs();
    let high = fastrand::u64(..) ^ process.rotate_left(32);
    let low = fastrand::u64(1..) ^ now.rotate_left(20);
    (high, low.max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::unique;

    #[test]
    fn no_two_are_equal() {
        let made: HashSet<_> = (0..10_000).map(|_| unique()).collect();
        assert_eq!(made.len(), 10_000);
    }
}
