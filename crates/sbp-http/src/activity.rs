//! What a connection is doing, and which of them makes room for another.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use sbp_locks::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who takes nothing of an answer for so long is not being answered any more.
const STUCK: Duration = Duration::from_secs(5);

/// How long at least a new connection has for its first request: what it has sent may not have been read yet.
const GRACE: Duration = Duration::from_millis(25);

/// What one connection is doing. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Whether it has ever sent a whole request.
    has_asked: bool,
    /// Whether an answer is being made, or the part of it that is made is not on its way.
    is_answered: bool,
    /// Since when the other side takes nothing, although there is something to take.
    stuck: Option<Instant>,
    /// When the connection was accepted, or its last answer was complete.
    since: Instant,
}

/// Why a connection may make room for another; the first of these goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Idle {
    /// It has not sent a whole request.
    Silent,
    /// It has been answered, and has not sent another whole request.
    Answered,
    /// It does not read its answer.
    Stuck,
}

impl Activity {
    /// That of a connection which was accepted now.
    pub(crate) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(State {
            has_asked: false,
            is_answered: false,
            stuck: None,
            since: now,
        })))
    }

    /// Why it may make room for another, and since when that is so; `None` while it is being answered.
    pub(crate) fn idle(&self, now: Instant) -> Option<(Idle, Instant)> {
        let state = self.0.lock();
        match (state.stuck, state.is_answered) {
            (Some(since), _) => (now.saturating_duration_since(since) >= STUCK).then_some((Idle::Stuck, since)),
            (None, true) => None,
            (None, false) if state.has_asked => Some((Idle::Answered, state.since)),
            (None, false) => Some((Idle::Silent, state.since)),
        }
    }

    /// Which of these makes room for another, if any: a place among them.
    pub(crate) fn first_to_go<'a>(all: impl Iterator<Item = &'a Self>, now: Instant) -> Option<usize> {
        let idle = all.enumerate().filter_map(|(place, one)| Some((one.idle(now)?, place)));
        let ((idle, since), place) = idle.min()?;
        let is_new = idle == Idle::Silent && now.saturating_duration_since(since) < GRACE;
        // A little later it goes, or one that has been silent for longer has sent a request.
        (!is_new).then_some(place)
    }

    fn begin_answer(&self) -> Answering {
        let mut state = self.0.lock();
        (state.has_asked, state.is_answered) = (true, true);
        Answering(self.clone())
    }

    fn wrote<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let mut state = self.0.lock();
        match outcome {
            Poll::Ready(_) => state.stuck = None,
            Poll::Pending => _ = state.stuck.get_or_insert_with(Instant::now),
        }
        drop(state);
        outcome
    }

    /// The same bytes, and it is seen when the other side does not take them.
    pub(crate) fn around<L>(&self, link: L) -> Watched<L> {
        let activity = self.clone();
        Watched { link, activity }
    }

    /// Answers as the router does, and it is seen how long that takes.
    pub(crate) fn answering(&self, router: Router) -> Answers {
        let router = TowerToHyperService::new(router);
        let activity = self.clone();
        Answers { router, activity }
    }
}

/// An answer that is not complete. Dropping this ends it.
#[derive(Debug)]
struct Answering(Activity);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        (state.is_answered, state.since) = (false, Instant::now());
    }
}

/// The answers to one connection.
#[derive(Debug)]
pub(crate) struct Answers {
    router: TowerToHyperService<Router>,
    activity: Activity,
}

impl Service<Request<Incoming>> for Answers {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answering = self.activity.begin_answer();
        let answered = self.router.call(request);
        Box::pin(async move {
            let answer = answered.await?;
            Ok(answer.map(|body| Answer {
                body,
                _answering: answering,
            }))
        })
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The way to the other side.
#[derive(Debug)]
pub(crate) struct Watched<L> {
    link: L,
    activity: Activity,
}

impl<L: AsyncRead + Unpin> AsyncRead for Watched<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_read(context, buffer)
    }
}

impl<L: AsyncWrite + Unpin> AsyncWrite for Watched<L> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.link).poll_write(context, bytes);
        self.activity.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.link).poll_write_vectored(context, parts);
        self.activity.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.link.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.link).poll_flush(context);
        self.activity.wrote(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_answered_makes_no_room_unless_nobody_takes_the_answer() {
        let begun = Instant::now();
        let later = begun + 2 * STUCK;
        let activity = Activity::new(begun);
        assert_eq!(activity.idle(begun), Some((Idle::Silent, begun)));
        let answering = activity.begin_answer();
        assert_eq!(activity.idle(later), None, "however long it takes to make it");
        let _pending = activity.wrote(Poll::<()>::Pending);
        assert_eq!(activity.idle(Instant::now()), None);
        assert_eq!(activity.idle(later).map(|(idle, _)| idle), Some(Idle::Stuck));
        let _written = activity.wrote(Poll::Ready(()));
        assert_eq!(activity.idle(later), None, "it reads again");
        let _pending = activity.wrote(Poll::<()>::Pending);
        drop(answering);
        assert_eq!(
            activity.idle(Instant::now()),
            None,
            "the end of the answer is not on its way"
        );
        let _written = activity.wrote(Poll::Ready(()));
        assert_eq!(activity.idle(later).map(|(idle, _)| idle), Some(Idle::Answered));
    }

    #[test]
    fn those_who_have_asked_nothing_go_first_and_a_new_one_is_waited_for() {
        let begun = Instant::now();
        let later = begun + GRACE;
        let [new, old, answered, asking] = [later, begun, begun, begun].map(Activity::new);
        drop(answered.begin_answer());
        let _answering = asking.begin_answer();
        let place = |all: &[&Activity], now| Activity::first_to_go(all.iter().copied(), now);
        assert_eq!(place(&[&asking, &answered, &new, &old], later), Some(3));
        assert_eq!(
            place(&[&asking, &answered, &new], later),
            None,
            "its request may be here"
        );
        assert_eq!(place(&[&asking, &answered, &new], later + GRACE), Some(2));
        assert_eq!(place(&[&asking, &answered], later), Some(1));
        assert_eq!(place(&[&asking], later), None);
    }
}
