use std::time::{Duration, Instant};

use super::{BackOff, Next, Phase, Reconnect, ReconnectPolicy};

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);

/// Two addresses, and a pause after each failure.
fn policy() -> ReconnectPolicy {
    ReconnectPolicy {
        addresses: 2,
        attempts_per_round: 1,
        back_off: BackOff {
            first: FIRST,
            longest: LONGEST,
            least: 0.5,
        },
        longest_before_reached: Duration::MAX,
        forgets_when_idle: false,
    }
}

type Machine = Reconnect<&'static str>;

/// Brings a new machine into a phase, with one connection behind it (generation 1), so that there is an old one to hear of.
fn in_phase(name: &str, now: Instant) -> Machine {
    let mut machine = Machine::new(policy(), false);
    assert!(machine.want(now));
    assert_eq!(machine.next(now, true), Next::Dial { address: 0 });
    assert_eq!(machine.dialled("old"), Next::Serve { generation: 1 });
    machine.attempts.reached();
    assert!(machine.drains(1));
    if name != "Idle" {
        assert!(machine.want(now));
    }
    if matches!(name, "Dialling" | "Ready" | "Pausing") {
        assert_eq!(machine.next(now, true), Next::Dial { address: 0 });
    }
    match name {
        "Ready" => assert_eq!(machine.dialled("new"), Next::Serve { generation: 2 }),
        "Pausing" => machine.dial_failed(now, 1.0),
        _ => {}
    }
    machine
}

/// The phases as a test sees them: one that waits because of a failure is another than one that may dial.
fn phase(machine: &Machine, now: Instant) -> &'static str {
    match &machine.phase {
        Phase::Idle => "Idle",
        Phase::Waiting if machine.attempts.pause_left(now).is_some() => "Pausing",
        Phase::Waiting => "Waiting",
        Phase::Dialling { .. } => "Dialling",
        Phase::Ready { .. } => "Ready",
    }
}

fn told(next: Next) -> &'static str {
    match next {
        Next::Dial { .. } => "dial",
        Next::WaitUntil(_) => "wait",
        Next::Serve { .. } => "serve",
        Next::End => "end",
    }
}

/// Feeds one input. The answer, in a word; "" for inputs that have none.
fn feed(machine: &mut Machine, input: &str, now: Instant) -> &'static str {
    let yes = |said: bool| if said { "yes" } else { "no" };
    match input {
        "want" => yes(machine.want(now)),
        "next" => told(machine.next(now, true)),
        "next, unwanted" => told(machine.next(now, false)),
        "dialled" => told(machine.dialled("next")),
        "dial_failed" => {
            machine.dial_failed(now, 1.0);
            ""
        }
        "lost" => {
            machine.lost(now, 1.0);
            ""
        }
        "drains, old" => yes(machine.drains(1)),
        "drains, new" => yes(machine.drains(2)),
        "reached" => {
            machine.attempts.reached();
            ""
        }
        "start_over" => {
            machine.attempts.start_over();
            ""
        }
        "move_on" => machine.move_on().map_or("", |(_, ready)| ready),
        "close" => yes(machine.close()),
        other => panic!("no input {other}"),
    }
}

const PHASES: [&str; 5] = ["Idle", "Waiting", "Pausing", "Dialling", "Ready"];

/// Each input in each phase: what it answers, and which phase follows.
#[rustfmt::skip]
const OPEN: [(&str, [(&str, &str); 5]); 12] = [
    ("want",           [("yes", "Waiting"), ("no", "Waiting"),    ("no", "Pausing"), ("no", "Dialling"),    ("no", "Ready")]),
    ("next",           [("end", "Idle"),    ("dial", "Dialling"), ("wait", "Pausing"), ("dial", "Dialling"), ("end", "Ready")]),
    ("next, unwanted", [("end", "Idle"),    ("end", "Idle"),      ("end", "Idle"),   ("end", "Idle"),       ("end", "Ready")]),
    ("dialled",        [("end", "Idle"),    ("end", "Waiting"),   ("end", "Pausing"), ("serve", "Ready"),   ("end", "Ready")]),
    ("dial_failed",    [("", "Idle"),       ("", "Waiting"),      ("", "Pausing"),   ("", "Pausing"),       ("", "Ready")]),
    ("lost",           [("", "Idle"),       ("", "Pausing"),      ("", "Pausing"),   ("", "Dialling"),      ("", "Ready")]),
    ("drains, old",    [("no", "Idle"),     ("no", "Waiting"),    ("no", "Pausing"), ("no", "Dialling"),    ("no", "Ready")]),
    ("drains, new",    [("no", "Idle"),     ("no", "Waiting"),    ("no", "Pausing"), ("no", "Dialling"),    ("yes", "Idle")]),
    ("reached",        [("", "Idle"),       ("", "Waiting"),      ("", "Waiting"),   ("", "Dialling"),      ("", "Ready")]),
    ("start_over",     [("", "Idle"),       ("", "Waiting"),      ("", "Waiting"),   ("", "Dialling"),      ("", "Ready")]),
    ("move_on",        [("", "Idle"),       ("", "Waiting"),      ("", "Pausing"),   ("", "Dialling"),      ("new", "Idle")]),
    ("close",          [("yes", "Idle"),    ("yes", "Waiting"),   ("yes", "Pausing"), ("yes", "Dialling"),  ("yes", "Ready")]),
];

/// The same once it is closed: only what differs.
#[rustfmt::skip]
const CLOSED: [(&str, [(&str, &str); 5]); 4] = [
    ("want",    [("no", "Idle"), ("no", "Waiting"),  ("no", "Pausing"),  ("no", "Dialling"), ("no", "Ready")]),
    ("next",    [("end", "Idle"), ("end", "Idle"),   ("end", "Idle"),    ("end", "Idle"),    ("end", "Ready")]),
    ("dialled", [("end", "Idle"), ("end", "Waiting"), ("end", "Pausing"), ("end", "Idle"),   ("end", "Ready")]),
    ("close",   [("no", "Idle"), ("no", "Waiting"),  ("no", "Pausing"),  ("no", "Dialling"), ("no", "Ready")]),
];

#[test]
fn each_input_in_each_phase() {
    let now = Instant::now();
    for (input, cells) in OPEN {
        for (before, expected) in PHASES.into_iter().zip(cells) {
            let mut machine = in_phase(before, now);
            assert_eq!(phase(&machine, now), before);
            let answer = feed(&mut machine, input, now);
            assert_eq!((answer, phase(&machine, now)), expected, "{input} in {before}");
        }
    }
}

#[test]
fn each_input_in_each_phase_once_it_is_closed() {
    let now = Instant::now();
    for (input, open) in OPEN {
        let differing = CLOSED.into_iter().find(|(name, _)| *name == input);
        let cells = differing.map_or(open, |(_, cells)| cells);
        for (before, expected) in PHASES.into_iter().zip(cells) {
            let mut machine = in_phase(before, now);
            assert!(machine.close());
            let answer = feed(&mut machine, input, now);
            assert_eq!((answer, phase(&machine, now)), expected, "{input} in {before}, closed");
        }
    }
}

/// Fails to dial until the next attempt has to wait, or `attempts` times. Which addresses were dialled, and the pauses.
fn failing(machine: &mut Machine, now: &mut Instant, attempts: usize) -> (Vec<usize>, Vec<Duration>) {
    let (mut addresses, mut pauses) = (Vec::new(), Vec::new());
    let _ = machine.want(*now);
    while addresses.len() < attempts {
        match machine.next(*now, true) {
            Next::Dial { address } => {
                addresses.push(address);
                machine.dial_failed(*now, 1.0);
            }
            Next::WaitUntil(until) => {
                pauses.push(until - *now);
                *now = until;
            }
            other => panic!("{other:?}"),
        }
    }
    (addresses, pauses)
}

#[test]
fn pauses_double_up_to_the_longest_and_each_failure_goes_to_the_next_address() {
    let mut now = Instant::now();
    let mut machine = Machine::new(policy(), true);
    let (addresses, pauses) = failing(&mut machine, &mut now, 7);
    assert_eq!(addresses, [0, 1, 0, 1, 0, 1, 0]);
    let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [10, 20, 40, 80, 100, 100]);
    assert_eq!(machine.attempts.failures(), 7);
}

#[test]
fn every_address_is_tried_once_before_the_first_pause_where_a_round_is_that_long() {
    let mut now = Instant::now();
    let rounds = ReconnectPolicy {
        attempts_per_round: 2,
        ..policy()
    };
    let mut machine = Machine::new(rounds, true);
    let (addresses, pauses) = failing(&mut machine, &mut now, 6);
    assert_eq!(addresses, [0, 1, 0, 1, 0, 1]);
    // After the second failure, and after each one from then on: a round that began counts as the one before.
    let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [10, 10, 20, 20]);
    assert_eq!(machine.attempts.rounds(5), 2);
}

#[test]
fn chance_takes_its_share_of_a_pause_and_no_more() {
    let half = policy().back_off;
    assert_eq!([half.pause(1, 0.0), half.pause(1, 1.0)], [FIRST / 2, FIRST]);
    let full = BackOff { least: 0.0, ..half };
    assert_eq!([full.pause(2, 0.0), full.pause(2, 0.5)], [Duration::ZERO, FIRST]);
    assert_eq!(full.bound(u32::MAX), LONGEST);
    assert_eq!(full.bound(0), FIRST);
}

#[test]
fn a_peer_that_was_never_reached_is_asked_more_often_until_it_is() {
    let now = Instant::now();
    let capped = ReconnectPolicy {
        longest_before_reached: FIRST / 2,
        ..policy()
    };
    let mut machine = Machine::new(capped, false);
    assert_eq!(machine.attempts.failing_for(now), Duration::ZERO);
    machine.lost(now, 1.0);
    assert!(machine.want(now));
    assert_eq!(machine.next(now, true), Next::WaitUntil(now + FIRST / 2));
    assert_eq!(machine.attempts.failing_for(now + FIRST), FIRST);
    machine.attempts.reached();
    assert!(machine.attempts.ever_reached() && machine.attempts.failures() == 0);
    assert_eq!(
        machine.next(now, true),
        Next::Dial { address: 1 },
        "without a pause, at the next address"
    );
    machine.dial_failed(now, 1.0);
    assert_eq!(machine.next(now, true), Next::WaitUntil(now + FIRST));
}

#[test]
fn who_gives_up_begins_anew() {
    let mut now = Instant::now();
    let mut machine = Machine::new(policy(), false);
    failing(&mut machine, &mut now, 5);
    machine.attempts.start_over();
    assert_eq!(
        (machine.attempts.failures(), machine.attempts.failing_for(now)),
        (0, Duration::ZERO)
    );
    assert!(matches!(machine.next(now, true), Next::Dial { .. }), "at once");
}

#[test]
fn failures_are_forgotten_while_nobody_wants_a_connection_where_the_policy_says_so() {
    let pause = Duration::from_millis(40);
    for forgets_when_idle in [false, true] {
        let mut now = Instant::now();
        let idle = ReconnectPolicy {
            forgets_when_idle,
            ..policy()
        };
        let mut machine = Machine::new(idle, true);
        failing(&mut machine, &mut now, 3);
        assert_eq!(machine.next(now, false), Next::End);
        // Within the pause it counts whoever asks.
        assert!(machine.want(now));
        assert_eq!(machine.next(now, true), Next::WaitUntil(now + pause));
        assert_eq!(machine.next(now, false), Next::End);
        assert!(machine.want(now + pause));
        let (address, failures) = if forgets_when_idle { (0, 0) } else { (1, 3) };
        assert_eq!(machine.next(now + pause, true), Next::Dial { address });
        assert_eq!(machine.attempts.failures(), failures);
    }
}

#[test]
fn an_address_that_is_left_is_not_the_next_one() {
    let now = Instant::now();
    let mut machine = in_phase("Ready", now);
    assert_eq!(machine.ready(), Some((2, &"new")));
    assert_eq!(machine.move_on(), Some((2, "new")));
    assert!(machine.ready().is_none() && !machine.is_ready(2));
    assert!(machine.want(now));
    assert_eq!(machine.next(now, true), Next::Dial { address: 1 });
    assert_eq!(machine.move_on(), None, "what is being dialled stays");
    assert_eq!(machine.next(now, true), Next::Dial { address: 1 });
}

/// What a runner does between its questions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Runner {
    Asking,
    Dialling,
}

/// A channel as its users and the network treat it, by chance. Runners are started as the machine asks, and each does what
/// it is told.
struct World {
    machine: Machine,
    now: Instant,
    random: fastrand::Rng,
    runners: Vec<Runner>,
    /// Connections that have not ended.
    connections: Vec<u64>,
    newest: u64,
    closed: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let policy = ReconnectPolicy {
            addresses: random.usize(1..4),
            attempts_per_round: random.u32(1..4),
            longest_before_reached: FIRST.mul_f64(random.f64() * 4.0),
            forgets_when_idle: random.bool(),
            ..policy()
        };
        Self {
            machine: Machine::new(policy, random.bool()),
            now: Instant::now(),
            random,
            runners: Vec::new(),
            connections: Vec::new(),
            newest: 0,
            closed: false,
        }
    }

    /// A connection, mostly one that there is.
    fn any_connection(&mut self) -> u64 {
        match self.connections.len() {
            0 => self.random.u64(0..5),
            count => self.connections[self.random.usize(0..count)],
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.random.u64(0..8));
        let draw = self.random.f64();
        match self.random.u32(0..12) {
            0..3 => {
                if self.machine.want(self.now) {
                    assert!(!self.closed, "a runner for a channel that is closed");
                    self.runners.push(Runner::Asking);
                }
            }
            3..8 => self.run(draw),
            8 => {
                let connection = self.any_connection();
                let was_ready = self.machine.is_ready(connection);
                self.machine.lost(self.now, draw);
                assert_eq!(self.machine.drains(connection), was_ready);
                self.connections.retain(|one| *one != connection);
            }
            9 => {
                let connection = self.any_connection();
                self.machine.drains(connection);
                assert!(!self.machine.is_ready(connection));
            }
            10 if draw < 0.5 => self.machine.attempts.reached(),
            10 => drop(self.machine.move_on()),
            _ if draw < 0.05 => {
                assert_eq!(self.machine.close(), !self.closed);
                self.closed = true;
            }
            _ => self.machine.attempts.start_over(),
        }
    }

    /// One runner, any, does what is its turn.
    fn run(&mut self, draw: f64) {
        if self.runners.is_empty() {
            return;
        }
        let index = self.random.usize(0..self.runners.len());
        if self.runners[index] == Runner::Dialling && self.random.bool() {
            if draw < 0.5 {
                self.machine.dial_failed(self.now, draw);
                self.runners[index] = Runner::Asking;
                return;
            }
            match self.machine.dialled("ready") {
                Next::Serve { generation } => {
                    assert!(!self.closed, "a new connection of a channel that is closed");
                    assert!(generation > self.newest, "an old generation");
                    self.newest = generation;
                    self.connections.push(generation);
                }
                next => assert_eq!(next, Next::End),
            }
            self.runners.swap_remove(index);
            return;
        }
        let wanted = self.random.u32(0..8) > 0;
        match self.machine.next(self.now, wanted) {
            Next::Dial { address } => {
                assert!(wanted && !self.closed && address < self.machine.attempts.policy.addresses);
                self.runners[index] = Runner::Dialling;
            }
            Next::WaitUntil(until) => {
                assert!(wanted && !self.closed && until > self.now && until <= self.now + LONGEST);
            }
            Next::End => drop(self.runners.swap_remove(index)),
            Next::Serve { .. } => panic!("nobody has connected"),
        }
    }

    fn check(&self) {
        assert!(self.runners.len() <= 1, "two runners dial: {:?}", self.runners);
        let is_run = matches!(self.machine.phase, Phase::Waiting | Phase::Dialling { .. });
        assert_eq!(is_run, !self.runners.is_empty(), "{:?}", self.machine);
        if let Some((ready, _)) = self.machine.ready() {
            assert_eq!(ready, self.newest, "an old connection takes work");
        }
    }

    /// However it got here: closed, its runner ends at its next question.
    fn end(mut self) {
        self.machine.close();
        for runner in std::mem::take(&mut self.runners) {
            let told = match runner {
                Runner::Dialling if self.random.bool() => self.machine.dialled("late"),
                _ => self.machine.next(self.now, true),
            };
            assert_eq!(told, Next::End);
        }
        assert!(!self.machine.want(self.now + LONGEST));
        let ready = self.machine.ready().map(|(generation, _)| generation);
        if let Some(generation) = ready {
            assert!(self.machine.drains(generation));
        }
        assert!(matches!(self.machine.phase, Phase::Idle));
    }
}

#[test]
fn addresses_that_are_tried_last_are_passed_over_unless_all_are() {
    let now = Instant::now();
    let dialled = |phase: &str, tried_last: &[usize]| {
        let mut machine = in_phase(phase, now);
        machine.pass_over(|address| tried_last.contains(&address));
        machine.next(now + LONGEST, true)
    };
    assert_eq!(dialled("Waiting", &[]), Next::Dial { address: 0 });
    assert_eq!(dialled("Waiting", &[0]), Next::Dial { address: 1 });
    assert_eq!(dialled("Waiting", &[0, 1]), Next::Dial { address: 0 });
    assert_eq!(
        dialled("Pausing", &[1]),
        Next::Dial { address: 0 },
        "a failure has moved on to 1"
    );
    assert_eq!(dialled("Dialling", &[0]), Next::Dial { address: 0 }, "that goes on");
}

#[test]
fn whatever_happens_one_runner_dials_the_newest_connection_serves_and_close_ends_it() {
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        let steps = world.random.usize(0..200);
        for _ in 0..steps {
            world.step();
            world.check();
        }
        world.end();
    }
}
