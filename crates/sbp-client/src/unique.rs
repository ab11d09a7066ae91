//! Names that nobody else makes up.

use sbp_types::WriterId;

/// A writer's name that no other call returns, in this process or any other.
#[must_use]
pub fn unique_writer_id() -> WriterId {
    let (high, low) = unique();
    WriterId { high, low }
}

/// 128 random bits of the operating system, not all of them zero. Two writers of one name would take each other's records
/// for repeats, and two holders of one name each other's commits for their own: nothing that begins equal in two processes
/// will do, such as a generator that a forked child inherits or that is seeded by the clock. So this is no UUID of the crate
/// `uuid`: with its feature `fast-rng`, which any crate of a program can turn on, it draws from a generator of the process.
///
/// # Panics
///
/// The operating system gives no random bytes, which it does from its start to its end; nothing safe could be done without.
pub(crate) fn unique() -> (u64, u64) {
    loop {
        let random = || getrandom::u64().expect("the operating system gives random bytes");
        let (high, low) = (random(), random());
        if (high, low) != (0, 0) {
            return (high, low);
        }
    }
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
