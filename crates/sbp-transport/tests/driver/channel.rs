//! A channel over connections that come and go, on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sbp_session::{CloseReason, Event, Session, SessionConfig};
use sbp_transport::{
    Application, BackOff, ChannelOwner, ChannelQueue, Descriptors, LinkSettings, ReconnectPolicy, ReconnectingChannel,
};
use tokio::{net::TcpListener, runtime::Handle, time::timeout};

/// Everything that is waited for is bounded by this.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum Word {
    Say(u32),
    Close,
}

#[derive(Debug, Default)]
struct Words(Vec<Word>);

impl ChannelQueue for Words {
    type Command = Word;
    type Learned = ();

    fn wants_connection(&mut self) -> bool {
        !self.0.is_empty()
    }

    fn take(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.0)
    }

    fn put_back(&mut self, words: Vec<Word>) {
        self.0.extend(words);
    }
}

struct Owner {
    channel: ReconnectingChannel<Words>,
    /// What connections were told, with their generation.
    heard: Mutex<Vec<(u64, u32)>>,
}

impl Owner {
    fn new(addresses: &[&str]) -> Arc<Self> {
        let policy = ReconnectPolicy {
            addresses: addresses.len(),
            attempts_per_round: 1,
            back_off: BackOff {
                first: Duration::from_millis(1),
                longest: Duration::from_millis(5),
                least: 0.5,
            },
            longest_before_reached: Duration::MAX,
            forgets_when_idle: false,
        };
        let addresses = addresses.iter().map(|address| Arc::from(*address)).collect();
        let runtime = Handle::current();
        let links = LinkSettings {
            timeout: LIMIT,
            tls: None,
            sockets: Descriptors::new(16),
        };
        Arc::new(Self {
            channel: ReconnectingChannel::new(addresses, links, policy, false, runtime),
            heard: Mutex::default(),
        })
    }

    fn say(self: &Arc<Self>, number: u32) {
        let mut state = self.channel.lock();
        if let Err(word) = state.post(Word::Say(number)) {
            state.queue.0.push(word);
            self.channel.ensure_connecting(self, &mut state);
        }
    }

    async fn close(&self) {
        self.channel.close(|| Word::Close);
        timeout(LIMIT, self.channel.wait_closed())
            .await
            .expect("a task goes on");
        assert!(self.channel.links().sockets.snapshot().is_empty(), "a socket is open");
    }
}

impl ChannelOwner for Owner {
    type Queue = Words;
    type Connection = Line;

    fn channel(&self) -> &ReconnectingChannel<Words> {
        &self.channel
    }

    fn endpoint(&self, now: Instant) -> Session {
        Session::new(SessionConfig::client(), now)
    }

    fn connection(self: Arc<Self>, _address: &Arc<str>, generation: u64) -> Line {
        Line {
            owner: self,
            generation,
        }
    }
}

struct Line {
    owner: Arc<Owner>,
    generation: u64,
}

impl Application for Line {
    type Endpoint = Session;
    type Command = Word;

    fn handle_command(&mut self, session: &mut Session, _: Instant, word: Word) {
        match word {
            Word::Say(number) => self.owner.heard.lock().unwrap().push((self.generation, number)),
            Word::Close => session.close(),
        }
    }

    fn handle_event(&mut self, _: &mut Session, _: Instant, event: Event) {
        if let Event::Closing { reason } = event {
            let channel = &self.owner.channel;
            let mut state = channel.lock();
            state.closing(&reason);
            if state.reconnect.drains(self.generation) {
                channel.ensure_connecting(&self.owner, &mut state);
            }
        }
    }

    fn finish_turn(&mut self, _: &mut Session, _: Instant) {}

    fn handle_closed(&mut self, _: &CloseReason) {}
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Waits until something is so, while the other tasks run.
async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, wait).await.expect("it did not come to that");
}

/// An address that refuses connections.
async fn nobody() -> String {
    listener().await.1
}

#[tokio::test]
async fn work_that_waits_goes_to_the_next_connection_wherever_that_is() {
    let (listener, address) = listener().await;
    let owner = Owner::new(&[&nobody().await, &address]);
    assert!(owner.channel.lock().ready().is_none());
    let accept = || async { timeout(LIMIT, listener.accept()).await.unwrap().unwrap().0 };
    owner.say(1);
    let first = accept().await;
    until(|| owner.heard.lock().unwrap().len() == 1).await;
    assert!(
        owner
            .channel
            .lock()
            .ready()
            .is_some_and(|ready| *ready.address == *address)
    );
    assert!(
        owner
            .channel
            .lock()
            .last_failure
            .as_deref()
            .is_some_and(|why| why.contains("cannot connect"))
    );
    drop(first);
    until(|| owner.channel.lock().ready().is_none()).await;
    owner.say(2);
    let _second = accept().await;
    until(|| owner.heard.lock().unwrap().len() == 2).await;
    assert_eq!(*owner.heard.lock().unwrap(), [(1, 1), (2, 2)]);
    owner.close().await;
    owner.say(3);
    owner.close().await;
    assert_eq!(owner.heard.lock().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_at_any_moment_it_ends_every_task() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        // Every second connection is kept until the other side ends it.
        let mut hangs_up = false;
        while let Ok((mut socket, _)) = listener.accept().await {
            hangs_up = !hangs_up;
            if !hangs_up {
                tokio::spawn(async move { tokio::io::copy(&mut socket, &mut tokio::io::sink()).await });
            }
        }
    });
    for round in 0..200 {
        let owner = Owner::new(&[&address]);
        owner.say(round);
        let until = Instant::now() + Duration::from_micros(u64::from(round) * 3);
        while Instant::now() < until {
            tokio::task::yield_now().await;
        }
        owner.close().await;
    }
    peer.abort();
}
