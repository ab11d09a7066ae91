//! A holder in a process of its own, which can be killed: this very test binary, started once more.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use sbp_client::CursorOptions;
use sbp_client::codes;
use sbp_types::Offset;

use sbp_e2e::clients::client;
use sbp_e2e::process::again;
use sbp_e2e::wait::LIMIT;

const SERVERS: &str = "SBP_CURSOR_SERVERS";
const GOAL: &str = "SBP_CURSOR_GOAL";
const REOPEN: &str = "SBP_CURSOR_REOPEN";

/// What a holder says of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Committed(i64),
    Taken,
    Doubtful,
}

/// A process that counts a cursor's place up, commit by commit. It does not outlive its owner.
pub(crate) struct Holder {
    child: Child,
    said: Receiver<Said>,
}

impl Holder {
    /// Starts one, which waits for [`Holder::go`]. With `reopen` it opens the cursor anew for each commit.
    pub(crate) fn start(servers: &str, goal: i64, reopen: bool) -> Self {
        let mut child = again("cursor::child::count_until_killed")
            .env(SERVERS, servers)
            .env(GOAL, goal.to_string())
            .env(REOPEN, reopen.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let said = match line.split_once("cursor: ").map(|(_, said)| said) {
                    Some("taken") => Said::Taken,
                    Some("doubtful") => Said::Doubtful,
                    Some(place) => Said::Committed(place.parse().unwrap()),
                    None => continue,
                };
                if sender.send(said).is_err() {
                    return;
                }
            }
        });
        Self { child, said }
    }

    pub(crate) fn go(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "go").unwrap();
    }

    /// The next that it says; `None` when it has ended.
    pub(crate) fn next(&self) -> Option<Said> {
        match self.said.recv_timeout(LIMIT) {
            Ok(said) => Some(said),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a holder said nothing for {LIMIT:?}"),
        }
    }

    /// Ends it with SIGKILL; returns what it had said and nobody had read.
    pub(crate) fn kill(mut self) -> Vec<Said> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Waits for its own end, after it said everything.
    pub(crate) fn join(mut self) {
        // It has closed its output when nothing more comes.
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a holder failed: {status}");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "the holder's process that the tests start"]
async fn count_until_killed() {
    let Ok(servers) = std::env::var(SERVERS) else {
        // Somebody runs all ignored tests.
        return;
    };
    let goal: i64 = std::env::var(GOAL).unwrap().parse().unwrap();
    let reopen = std::env::var(REOPEN).unwrap() == "true";
    let client = client(&servers);
    let stream = client.find_stream("orders", None).await.unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut held = None;
    loop {
        let cursor = match held.take() {
            Some(cursor) => cursor,
            None => {
                let opened = client.cursor("job", vec![stream.clone()], CursorOptions::default());
                opened.await.unwrap()
            }
        };
        let next = cursor.positions()[0].1.0 + 1;
        if next > goal {
            return;
        }
        let committed = cursor.commit(vec![(stream.stream_id, Offset(next))], None).await;
        match committed {
            Ok(()) => {
                println!("cursor: {next}");
                held = Some(cursor).filter(|_| !reopen);
            }
            Err(error) if error.code() == codes::CURSOR_TAKEN => println!("cursor: taken"),
            Err(error) if error.is_indeterminate() => println!("cursor: doubtful"),
            Err(error) => panic!("{error}"),
        }
    }
}
