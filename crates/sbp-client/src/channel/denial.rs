//! What is remembered of a server that did not believe this client: asked again at once, it would say the same again.

use std::time::{Duration, Instant};

use sbp_transport::BackOff;

use crate::failure::Cause;

/// How long a refusal answers for the server. It is asked again after that, because a file or a callable may give another
/// token, and the server may know this one by then.
const PAUSES: BackOff = BackOff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
    least: 0.5,
};

/// The last refusal, if no other answer came after it.
#[derive(Debug, Default)]
pub(crate) struct Denial {
    last: Option<Cause>,
    until: Option<Instant>,
    in_a_row: u32,
}

impl Denial {
    /// The server has refused to serve this client. `draw` is drawn from 0 to 1.
    pub(crate) fn note(&mut self, cause: &Cause, now: Instant, draw: f64) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.until = Some(now + PAUSES.pause(self.in_a_row, draw));
        self.last = Some(cause.clone());
    }

    /// The server serves this client.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The answer to whoever would ask now.
    pub(crate) fn answer(&self, now: Instant) -> Option<&Cause> {
        self.last
            .as_ref()
            .filter(|_| self.until.is_some_and(|until| now < until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_answers_for_longer_each_time_until_the_server_gives_in() {
        let (mut denial, mut now) = (Denial::default(), Instant::now());
        assert_eq!(denial.answer(now), None);
        let cause = Cause::NotStarted;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            denial.note(&cause, now, 1.0);
            assert_eq!(denial.answer(now), Some(&cause));
            let until = denial.until.expect("noted");
            assert_eq!(denial.answer(until), None, "asked again");
            pauses.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        denial.note(&cause, now, 0.0);
        denial.forget();
        assert_eq!(denial.answer(now), None);
        denial.note(&cause, now, 0.0);
        assert_eq!(
            denial.until,
            Some(now + Duration::from_millis(250)),
            "half of it is waited in any case"
        );
    }
}
