//! The keys of OAuth tokens, fetched from whoever issues these.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_transport::ClientTlsFiles;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::error::AccessError;
use crate::http_get::{HttpAsker, HttpUrl};

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of an answer.
const LONGEST: usize = 1 << 20;
/// How long keys are believed that cannot be fetched again.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// So many times in the time after which keys are fetched again they may be fetched because of a token.
const PER_REFRESH: u32 = 10;

/// Where the keys are fetched from, and what has come of it.
#[derive(Debug)]
pub(crate) struct KeyUrl {
    url: HttpUrl,
    asker: HttpAsker,
    /// How long keys are used before they are fetched again.
    refresh: Duration,
    /// A token names a key that nobody knows.
    wanted: Notify,
    state: Mutex<State>,
    fetches: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// When it was tried last, and whether that brought keys.
    last: Option<(Instant, bool)>,
    /// When keys came last.
    good: Option<Instant>,
    /// The SHA-256 of their text.
    digest: Option<[u8; 32]>,
}

/// What has come of a try to fetch keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    /// Another text than the last time.
    New,
    /// The same text.
    Same,
    /// Nothing, for this reason; what came before is believed.
    Nothing(String),
    /// Nothing, and that for too long: what came before is not believed any more.
    Stale(String),
}

impl KeyUrl {
    pub(super) fn open(url: &str, ca: Option<PathBuf>, refresh: Duration) -> Result<Self, AccessError> {
        let bad = |reason: String| AccessError::BadKeys {
            source_of_keys: url.to_owned(),
            reason,
        };
        let parsed = HttpUrl::parse(url).map_err(bad)?;
        if !parsed.is_safe() {
            let reason =
                "over http:// anybody on the way could send other keys: use https://, or an address on loopback";
            return Err(bad(reason.to_owned()));
        }
        let tls = ClientTlsFiles {
            ca,
            ..ClientTlsFiles::default()
        };
        let asker = HttpAsker::new(&parsed, tls, WITHIN, LONGEST).map_err(bad)?;
        Ok(Self {
            url: parsed,
            asker,
            refresh,
            wanted: Notify::new(),
            state: Mutex::default(),
            fetches: AtomicU64::new(0),
        })
    }

    /// As it was given.
    pub(super) fn name(&self) -> &str {
        self.url.as_str()
    }

    /// How often keys were fetched, and taken over, since the start.
    pub(super) fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Acquire)
    }

    /// Whether keys have ever come.
    pub(super) fn has_come(&self) -> bool {
        self.state.lock().good.is_some()
    }

    /// A token names a key that is not known: it may be new.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until it is time to fetch the keys again: they are old, the last try brought none, or a token has named another
    /// one. However many tokens do, that is not before a tenth of the time has passed.
    pub(crate) async fn wait_until_due(&self) {
        let Some((last, was_good)) = self.state.lock().last else {
            return;
        };
        let soonest = last + self.refresh / PER_REFRESH;
        sleep_until(soonest).await;
        if was_good {
            tokio::select! {
                () = sleep_until(last + self.refresh) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    /// Fetches the keys.
    pub(super) async fn fetch(&self) -> Result<String, String> {
        let answer = self.asker.get(&self.url, "").await?;
        if !answer.status.is_success() {
            return Err(format!("the answer is {}", answer.status));
        }
        String::from_utf8(answer.body.into()).map_err(|_| "the answer is no text".to_owned())
    }

    /// Notes what came of a try.
    pub(super) fn note(&self, came: Result<String, String>, now: Instant) -> Fetched {
        let mut state = self.state.lock();
        state.last = Some((now, came.is_ok()));
        match came {
            Ok(text) => {
                let digest = Some(Sha256::digest(&text).into());
                state.good = Some(now);
                match std::mem::replace(&mut state.digest, digest) == digest {
                    true => Fetched::Same,
                    false => Fetched::New,
                }
            }
            Err(why)
                if state
                    .good
                    .is_some_and(|good| now.saturating_duration_since(good) >= KEPT) =>
            {
                // What comes next is new, whatever it is.
                (state.good, state.digest) = (None, None);
                Fetched::Stale(why)
            }
            Err(why) => Fetched::Nothing(why),
        }
    }

    /// What was fetched has been taken over.
    pub(super) fn count(&self) {
        self.fetches.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> KeyUrl {
        KeyUrl::open("http://127.0.0.1:1/keys", None, Duration::from_secs(300)).expect("an address")
    }

    #[test]
    fn keys_that_came_are_believed_for_a_day_without_others() {
        let (keys, begin) = (keys(), Instant::now());
        let text = || Ok("{}".to_owned());
        let none = || Err("gone".to_owned());
        assert_eq!(keys.note(none(), begin), Fetched::Nothing("gone".to_owned()));
        assert_eq!(keys.note(text(), begin), Fetched::New);
        assert_eq!(keys.note(text(), begin), Fetched::Same);
        let almost = begin + KEPT - Duration::from_secs(1);
        assert_eq!(keys.note(none(), almost), Fetched::Nothing("gone".to_owned()));
        assert_eq!(keys.note(none(), begin + KEPT), Fetched::Stale("gone".to_owned()));
        assert!(!keys.has_come());
        assert_eq!(keys.note(none(), begin + KEPT), Fetched::Nothing("gone".to_owned()));
        assert_eq!(keys.note(text(), begin + KEPT), Fetched::New);
    }

    /// Whatever tokens name, keys are fetched ten times in five minutes at most; else when they are old.
    #[tokio::test(start_paused = true)]
    async fn keys_are_fetched_when_they_are_old_or_wanted_and_seldom() {
        let keys = keys();
        keys.wait_until_due().await;
        for (came, wanted, after) in [
            (true, false, 300),
            (true, true, 30),
            (false, false, 30),
            (false, true, 30),
        ] {
            let began = Instant::now();
            keys.note(came.then(String::new).ok_or_else(String::new), began);
            for _ in 0..100 {
                if wanted {
                    keys.want();
                }
            }
            keys.wait_until_due().await;
            assert_eq!(began.elapsed().as_secs(), after, "came {came}, wanted {wanted}");
        }
    }

    #[test]
    fn addresses_that_are_none() {
        for (url, why) in [
            ("http://login.example/keys", "use https://"),
            ("https://", "no address"),
            ("https://u:p@login.example/keys", "a password"),
        ] {
            let told = KeyUrl::open(url, None, WITHIN).expect_err(url).to_string();
            assert!(told.contains(why), "{told}");
        }
        let none = Some(PathBuf::from("/no/such/file"));
        let told = KeyUrl::open("https://login.example/keys", none, WITHIN).expect_err("no file");
        assert!(told.to_string().contains("/no/such/file"), "{told}");
    }
}
