//! How busy the log is, and what that means for appends.

use std::time::Duration;

/// The longest that a client is asked to wait.
pub(super) const MAX_THROTTLE: Duration = Duration::from_secs(1);

/// How a new append is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    /// It is accepted.
    None,
    /// It is accepted, and its sender is asked to wait this long before the next one.
    Throttled(Duration),
    /// It is refused, and may be sent again later.
    TooHigh,
}

/// The pressure when `pending` of at most `most` bytes wait for the disk. From a quarter of `most` on, clients are
/// asked to wait, longer the more bytes wait.
pub(super) fn pressure(pending: u64, most: u64) -> Pressure {
    let from = most / 4;
    if pending > most {
        return Pressure::TooHigh;
    }
    let above = pending.saturating_sub(from);
    // In ms, rounded up: a throttle of 0 ms would have no effect.
    let span = u128::from(most - from).max(1);
    let asked = (u128::from(above) * MAX_THROTTLE.as_millis()).div_ceil(span);
    match u64::try_from(asked) {
        Ok(0) => Pressure::None,
        Ok(asked) => Pressure::Throttled(Duration::from_millis(asked)),
        Err(_) => Pressure::Throttled(MAX_THROTTLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_waits_the_longer_clients_are_asked_to_wait() {
        let throttled = |ms| Pressure::Throttled(Duration::from_millis(ms));
        let cases = [
            (0, 4_000, Pressure::None),
            (1_000, 4_000, Pressure::None),
            (1_001, 4_000, throttled(1)),
            (2_500, 4_000, throttled(500)),
            (4_000, 4_000, throttled(1_000)),
            (4_001, 4_000, Pressure::TooHigh),
            (0, 0, Pressure::None),
            (1, 0, Pressure::TooHigh),
            (u64::MAX, u64::MAX, throttled(1_000)),
        ];
        for (pending, most, expected) in cases {
            assert_eq!(pressure(pending, most), expected, "{pending} of {most}");
        }
    }
}
