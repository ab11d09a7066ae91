//! What servers ask for with `throttle_time_ms`: a pause before the next request of that kind, also after success.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sbp_frame::OpCode;
use sbp_locks::Mutex;
use smallvec::SmallVec;

use crate::clock::{earlier, now, sleep_until};
use crate::retry::THROTTLE_MAX;

/// The pauses that one server asks for, by kind of request.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    /// A pause was ever asked for. None was, usually, and then no lock is taken.
    any: AtomicBool,
    until: Mutex<SmallVec<[(OpCode, Instant); 2]>>,
}

/// How long an answer asks for, within bounds.
fn asked_for(throttle_time_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(throttle_time_ms).unwrap_or(0)).min(THROTTLE_MAX)
}

/// Up to a tenth more, so that those who were asked together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause + pause.mul_f64(fastrand::f64() / 10.0)
}

impl Throttles {
    /// An answer asks for a pause.
    pub(crate) fn note(&self, opcode: OpCode, throttle_time_ms: i32, now: Instant) {
        let pause = asked_for(throttle_time_ms);
        if pause.is_zero() {
            return;
        }
        let until = now + jittered(pause);
        let mut known = self.until.lock();
        match known.iter_mut().find(|(kind, _)| *kind == opcode) {
            Some((_, at)) => *at = until.max(*at),
            None => known.push((opcode, until)),
        }
        self.any.store(true, Ordering::Release);
    }

    /// Waits until requests of a kind may be sent, though not beyond `latest`.
    pub(crate) async fn wait(&self, opcode: OpCode, latest: Option<Instant>) {
        if let Some(until) = self.until(opcode, now()) {
            sleep_until(earlier(Some(until), latest)).await;
        }
    }

    /// Until when requests of a kind are to wait.
    pub(crate) fn until(&self, opcode: OpCode, now: Instant) -> Option<Instant> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let known = self.until.lock();
        let found = known.iter().find(|(kind, _)| *kind == opcode);
        found.map(|&(_, at)| at).filter(|&at| at > now)
    }
}

/// How many requests may be on their way to a server that asks for pauses now and then: halved with each pause, one more
/// with each answer that asks for none.
#[derive(Debug)]
pub(crate) struct Window {
    calls: usize,
    /// Answers until then belong to the pause that was counted.
    counted_until: Option<Instant>,
}

impl Default for Window {
    /// A window without a bound, until the server asks for the first pause.
    fn default() -> Self {
        Self {
            calls: usize::MAX,
            counted_until: None,
        }
    }
}

impl Window {
    /// Requests that may be on their way.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// An answer asks for this pause, or for none, while so many requests are on their way.
    pub(crate) fn note(&mut self, throttle_time_ms: i32, in_flight: usize, now: Instant) {
        let pause = asked_for(throttle_time_ms);
        if pause.is_zero() {
            self.calls = self.calls.saturating_add(1);
        } else if self.counted_until.is_none_or(|until| until <= now) {
            self.calls = (self.calls.min(in_flight) / 2).max(1);
            self.counted_until = Some(now + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sbp_frame::OpCode;

    use super::{Throttles, Window};

    #[test]
    fn a_window_is_halved_once_for_each_pause_and_grows_with_what_is_welcome() {
        let mut window = Window::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        window.note(0, 10, start);
        assert_eq!(window.calls(), usize::MAX);
        // All that was on its way is answered with the same pause.
        for in_flight in (1..=64).rev() {
            window.note(100, in_flight, at(1));
        }
        assert_eq!(window.calls(), 32);
        window.note(100, 32, at(102));
        assert_eq!(window.calls(), 16);
        window.note(-1, 16, at(103));
        window.note(0, 16, at(104));
        assert_eq!(window.calls(), 18);
        for pause in 0..10 {
            window.note(i32::MAX, 18, at(40_000 * (pause + 1)));
        }
        assert_eq!(window.calls(), 1, "one goes on, to ask");
    }

    #[test]
    fn a_pause_is_for_its_kind_and_has_an_end() {
        let throttles = Throttles::default();
        let now = Instant::now();
        for (ms, least, most) in [(0, 0, 0), (-5, 0, 0), (1_000, 1_000, 1_100), (500, 1_000, 1_100)] {
            throttles.note(OpCode::FETCH, ms, now);
            let until = throttles.until(OpCode::FETCH, now);
            let pause = until.map_or(Duration::ZERO, |at| at - now);
            let within = Duration::from_millis(least)..=Duration::from_millis(most);
            assert!(within.contains(&pause), "{ms}: {pause:?}");
        }
        assert_eq!(throttles.until(OpCode::APPEND, now), None);
        assert_eq!(throttles.until(OpCode::FETCH, now + Duration::from_secs(2)), None);
        throttles.note(OpCode::APPEND, i32::MAX, now);
        assert_eq!(throttles.until(OpCode::APPEND, now + Duration::from_secs(34)), None);
    }
}
