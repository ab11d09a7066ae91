//! What a name uses of its quota, over all its connections to this server. The clock is an argument.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;

use super::quota::Quota;
use crate::refusal::Refusal;

/// A name may take this much time's worth of bytes at once, after it took none for as long; and it may be this far ahead of
/// its rate before it is refused, which is twice the rate for a moment.
const BURST: Duration = Duration::from_secs(1);
/// No debt is longer: ten years, which one batch costs at a byte or so a second.
const LONGEST_DEBT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into the server: records that are appended.
    In,
    /// Out of it: records that are read.
    Out,
}

/// What was taken at a rate, as the moment at which it is paid off. One number instead of a bucket with a level and a time.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    paid_off: Option<Instant>,
}

impl Account {
    fn take(&mut self, bytes: usize, rate: u64, now: Instant) {
        let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(LONGEST_DEBT);
        let saved_from = now.checked_sub(BURST).unwrap_or(now);
        let paid_off = self.paid_off.map_or(saved_from, |paid_off| paid_off.max(saved_from));
        self.paid_off = Some((paid_off + cost).min(now + LONGEST_DEBT));
    }

    /// How long it takes until everything taken is paid off.
    fn debt(&self, now: Instant) -> Duration {
        let paid_off = self.paid_off.unwrap_or(now);
        paid_off.saturating_duration_since(now)
    }

    /// How much time's worth of bytes may be taken until the debt is that of twice the rate; `None`: it is larger.
    fn left(&self, now: Instant) -> Option<Duration> {
        let saved_from = now.checked_sub(BURST).unwrap_or(now);
        let paid_off = self.paid_off.map_or(saved_from, |paid_off| paid_off.max(saved_from));
        (now + BURST).checked_duration_since(paid_off)
    }
}

/// What a name uses, shared by all its connections. It outlives them, so that nobody gets a fresh quota by connecting anew.
#[derive(Debug)]
pub(crate) struct Usage {
    name: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    quota: Quota,
    bytes_in: Account,
    bytes_out: Account,
    calls: u32,
    connections: u32,
}

impl State {
    /// The rate in a direction, if there is one, with its account.
    fn account(&mut self, direction: Direction) -> Option<(u64, &mut Account)> {
        let (rate, account) = match direction {
            Direction::In => (self.quota.bytes_in_per_second, &mut self.bytes_in),
            Direction::Out => (self.quota.bytes_out_per_second, &mut self.bytes_out),
        };
        Some((rate?, account))
    }
}

impl Usage {
    pub(super) fn new(name: Arc<str>, quota: Quota) -> Self {
        let state = State {
            quota,
            ..State::default()
        };
        Self {
            name,
            state: Mutex::new(state),
        }
    }

    /// Another quota counts from now on, for those who are connected too. Debts at another rate are forgotten.
    pub(super) fn set_quota(&self, quota: Quota) {
        let mut state = self.state.lock();
        let old = std::mem::replace(&mut state.quota, quota);
        if old.bytes_in_per_second != quota.bytes_in_per_second {
            state.bytes_in = Account::default();
        }
        if old.bytes_out_per_second != quota.bytes_out_per_second {
            state.bytes_out = Account::default();
        }
    }

    /// Refuses who is ahead of the rate by more than the burst: twice the rate was taken.
    fn check_rate(&self, direction: Direction, now: Instant) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let Some((rate, account)) = state.account(direction) else {
            return Ok(());
        };
        if account.debt(now) <= BURST {
            return Ok(());
        }
        let (does, key) = match direction {
            Direction::In => ("appends", "bytes-in"),
            Direction::Out => ("reads", "bytes-out"),
        };
        let name = &self.name;
        Err(over_quota(format!(
            "{name} {does} at more than twice its quota of {rate} bytes a second ({key}), over all its connections: wait as \
             long as the server asks for, or ask its operator for more"
        )))
    }

    /// How many bytes are left until twice the rate was taken; `None`: there is no rate.
    fn left(&self, direction: Direction, now: Instant) -> Option<usize> {
        let mut state = self.state.lock();
        let (rate, account) = state.account(direction)?;
        let Some(time) = account.left(now) else { return Some(0) };
        let bytes = time.as_nanos().saturating_mul(u128::from(rate)) / 1_000_000_000;
        // Whoever may read at all gets a batch.
        Some(usize::try_from(bytes).unwrap_or(usize::MAX).max(1))
    }

    fn take(&self, direction: Direction, bytes: usize, now: Instant) {
        if let Some((rate, account)) = self.state.lock().account(direction) {
            account.take(bytes, rate, now);
        }
    }

    /// How many milliseconds the name is asked to wait before it goes on.
    fn wait_ms(&self, direction: Direction, now: Instant) -> i32 {
        let debt = match self.state.lock().account(direction) {
            None => Duration::ZERO,
            Some((_, account)) => account.debt(now),
        };
        // A debt of less than a millisecond is one.
        i32::try_from(debt.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    }
}

fn over_quota(message: String) -> Refusal {
    Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message)
}

/// One connection of a name that has a quota. Dropping it gives back what it holds.
#[derive(Debug)]
pub(crate) struct Presence {
    usage: Arc<Usage>,
    /// The requests of this connection that are under way.
    calls: u32,
}

impl Presence {
    /// Counts a connection, with the requests that are under way on it; refuses it where there are as many connections as
    /// there may be, unless it is there already.
    pub(crate) fn enter(usage: &Arc<Usage>, is_there: bool, calls: u32) -> Result<Self, Refusal> {
        let mut state = usage.state.lock();
        if let Some(most) = state.quota.connections
            && state.connections >= most
            && !is_there
        {
            let name = &usage.name;
            return Err(over_quota(format!(
                "{name} has {} connections to this server, and its quota is {most} (connections): close one, or ask the \
                 server's operator for more",
                state.connections
            )));
        }
        state.connections += 1;
        state.calls += calls;
        drop(state);
        Ok(Self {
            usage: Arc::clone(usage),
            calls,
        })
    }

    /// Whether this is a connection of the name that uses this.
    pub(crate) fn is_of(&self, usage: &Arc<Usage>) -> bool {
        Arc::ptr_eq(&self.usage, usage)
    }

    /// A request begins. It is counted, and ends, also when it is refused.
    pub(crate) fn begin_call(&mut self) -> Result<(), Refusal> {
        self.calls += 1;
        let mut state = self.usage.state.lock();
        state.calls += 1;
        match state.quota.calls {
            Some(most) if state.calls > most => {
                let name = &self.usage.name;
                Err(over_quota(format!(
                    "{name} has {most} requests under way, over all its connections, and its quota is no more (calls): wait \
                     for answers, or ask the server's operator for more"
                )))
            }
            _ => Ok(()),
        }
    }

    /// A request has ended.
    pub(crate) fn end_call(&mut self) {
        if let Some(left) = self.calls.checked_sub(1) {
            self.calls = left;
            self.usage.state.lock().calls -= 1;
        }
    }

    /// Takes bytes that have arrived, unless twice the rate is used up.
    pub(crate) fn charge_in(&self, bytes: usize, now: Instant) -> Result<(), Refusal> {
        self.usage.check_rate(Direction::In, now)?;
        self.usage.take(Direction::In, bytes, now);
        Ok(())
    }

    /// Whether more may be read.
    pub(crate) fn check_out(&self, now: Instant) -> Result<(), Refusal> {
        self.usage.check_rate(Direction::Out, now)
    }

    /// How many bytes may be read now, though one batch may be larger; 0: nothing. `None`: there is no limit.
    pub(crate) fn may_read(&self, now: Instant) -> Option<usize> {
        self.usage.left(Direction::Out, now)
    }

    /// Takes bytes that leave.
    pub(crate) fn charge_out(&self, bytes: usize, now: Instant) {
        self.usage.take(Direction::Out, bytes, now);
    }

    /// How many milliseconds the peer is asked to wait before it goes on; 0: not at all.
    pub(crate) fn wait_ms(&self, direction: Direction, now: Instant) -> i32 {
        self.usage.wait_ms(direction, now)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut state = self.usage.state.lock();
        state.connections = state.connections.saturating_sub(1);
        state.calls = state.calls.saturating_sub(self.calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(quota: Quota) -> Arc<Usage> {
        Arc::new(Usage::new("billing".into(), quota))
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_rate_asks_for_patience_beyond_it_and_refuses_beyond_twice_of_it() {
        let quota = Quota {
            bytes_in_per_second: Some(1_000),
            ..Quota::default()
        };
        let usage = usage(quota);
        let one = Presence::enter(&usage, false, 0).expect("no limit of connections");
        let other = Presence::enter(&usage, false, 0).expect("no limit of connections");
        let begin = Instant::now() + seconds(10);
        one.charge_in(1_000, begin).expect("a second's worth at once");
        assert_eq!(one.wait_ms(Direction::In, begin), 0);
        other.charge_in(500, begin).expect("within twice the rate");
        assert_eq!(
            one.wait_ms(Direction::In, begin),
            500,
            "all connections of a name share the rate"
        );
        assert_eq!(one.wait_ms(Direction::Out, begin), 0);
        one.charge_in(1_000, begin).expect("not yet beyond twice the rate");
        let refused = other.charge_in(1, begin).expect_err("beyond");
        assert_eq!(refused.code, ErrorCode::TOO_MANY_REQUESTS);
        for part in ["billing", "1000 bytes a second", "bytes-in", "ask its operator"] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        assert_eq!(one.wait_ms(Direction::In, begin), 1_500, "what is refused is not taken");
        let later = begin + Duration::from_millis(1_500);
        assert_eq!(one.wait_ms(Direction::In, later), 0);
        usage.set_quota(Quota {
            bytes_in_per_second: Some(10),
            ..quota
        });
        one.charge_in(16 << 20, later).expect("one batch of any size");
        assert!(one.charge_in(1, later + seconds(60)).is_err());
        usage.set_quota(Quota::default());
        one.charge_in(usize::MAX, later).expect("no quota any more");
        assert_eq!(one.wait_ms(Direction::In, later), 0);
    }

    /// Whoever waits as asked is never refused, and gets the rate.
    #[test]
    fn the_patient_get_their_rate_and_no_refusal() {
        let usage = usage(Quota {
            bytes_out_per_second: Some(1 << 20),
            ..Quota::default()
        });
        let presence = Presence::enter(&usage, false, 0).expect("no limit of connections");
        let begin = Instant::now() + seconds(10);
        let (mut now, mut bytes) = (begin, 0_u64);
        while now < begin + seconds(100) {
            presence.check_out(now).expect("patient");
            presence.charge_out(300_000, now);
            bytes += 300_000;
            let wait = presence.wait_ms(Direction::Out, now);
            now += Duration::from_millis(u64::try_from(wait).expect("not negative"));
        }
        let most = 101 * (1 << 20) + 300_000;
        assert!((100 << 20..=most).contains(&bytes), "{bytes}");
    }

    #[test]
    fn calls_and_connections_are_counted_and_given_back() {
        let usage = usage(Quota {
            calls: Some(2),
            connections: Some(2),
            ..Quota::default()
        });
        let mut one = Presence::enter(&usage, false, 0).expect("the first");
        let mut other = Presence::enter(&usage, false, 0).expect("the second");
        let refused = Presence::enter(&usage, false, 0).expect_err("the third");
        for part in ["billing has 2 connections", "its quota is 2", "close one"] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        let third = Presence::enter(&usage, true, 0).expect("there already");
        one.begin_call().expect("one");
        other.begin_call().expect("two");
        let refused = one.begin_call().expect_err("three");
        assert!(refused.message.contains("2 requests under way"), "{}", refused.message);
        one.end_call();
        other.end_call();
        one.begin_call().expect("two again");
        one.end_call();
        one.end_call();
        one.end_call();
        drop((one, third));
        other.begin_call().expect("one");
        other.begin_call().expect("two");
        let _one = Presence::enter(&usage, false, 0).expect("the second");
        drop(other);
        let mut other = Presence::enter(&usage, false, 0).expect("the second");
        other.begin_call().expect("a connection that ends gives its calls back");
    }

    /// A connection shows another token while requests are under way on it: they are those of the other name from then on.
    #[test]
    fn requests_under_way_go_with_their_connection_to_another_name() {
        let quota = Quota {
            calls: Some(2),
            ..Quota::default()
        };
        let (before, after) = (usage(quota), usage(quota));
        let mut present = Presence::enter(&before, false, 0).expect("no limit of connections");
        present.begin_call().expect("one");
        present.begin_call().expect("two");
        present = Presence::enter(&after, false, present.calls).expect("no limit of connections");
        let mut others = Presence::enter(&before, false, 0).expect("no limit of connections");
        others.begin_call().expect("the other name has none");
        assert!(present.begin_call().is_err(), "three");
        for _ in 0..3 {
            present.end_call();
        }
        present.begin_call().expect("one");
        present.begin_call().expect("two");
        assert!(present.begin_call().is_err(), "three");
    }

    /// A disk that takes one batch a tick, first come first served. Two names append: one a batch every ten ticks, as its
    /// quota allows; the other without end, at ten times its quota, and it waits for nothing.
    #[test]
    fn who_is_at_ten_times_its_quota_keeps_nobody_else_waiting() {
        const TICK: Duration = Duration::from_millis(1);
        const BATCH: usize = 1_000;
        let delays = |greedy_per_tick: u32, quota: Option<u64>| {
            let greedy = usage(Quota {
                bytes_in_per_second: quota,
                ..Quota::default()
            });
            let greedy = Presence::enter(&greedy, false, 0).expect("no limit of connections");
            let begin = Instant::now() + seconds(10);
            // Of those who wait for the disk: when the modest one's came, `None` for the greedy one's.
            let mut disk = std::collections::VecDeque::new();
            let mut delays = Vec::new();
            for tick in 0..20_000_u32 {
                let now = begin + TICK * tick;
                for _ in 0..greedy_per_tick {
                    if greedy.charge_in(BATCH, now).is_ok() {
                        disk.push_back(None);
                    }
                }
                if tick % 10 == 0 {
                    disk.push_back(Some(tick));
                }
                if let Some(Some(came)) = disk.pop_front()
                    // What its burst has left behind is over by then.
                    && tick > 10_000
                {
                    delays.push(tick - came);
                }
            }
            delays.sort_unstable();
            delays.get(delays.len() * 99 / 100).copied()
        };
        // Half of what the disk takes, and ten times as much is sent.
        let alone = delays(0, None).expect("some");
        let beside = delays(5, Some(500_000)).expect("some");
        assert!(beside <= 2 * alone.max(1), "{beside} ticks beside, {alone} alone");
        assert!(
            delays(5, None).is_none_or(|wait| wait > 1_000),
            "without a quota it waits"
        );
    }
}
