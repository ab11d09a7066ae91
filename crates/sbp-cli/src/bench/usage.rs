//! CPU time of this process.

use std::fs;
use std::time::Duration;

/// CPU time that this process has used, all threads, user and system. Counted in clock ticks, mostly 10 ms.
///
/// `None` where there is no `/proc`.
pub(crate) fn cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name may hold anything, a closing parenthesis included; what follows the last one is numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    // Fields 14 and 15 of the line; the name is field 2.
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(ticks * 1_000 / per_second))
}

/// CPU time used since `before` was taken.
pub(crate) fn cpu_time_since(before: Option<Duration>) -> Option<Duration> {
    Some(cpu_time()?.saturating_sub(before?))
}
