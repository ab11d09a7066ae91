//! Callbacks that bring the answers of range servers back to the metadata thread.

use std::marker::PhantomData;
use std::sync::mpsc;

use super::{Event, Worker};
use crate::refusal::{Done, Refusal};

impl Worker {
    /// A callback that sends a range server's answer to the metadata thread as an event. If it is dropped without being
    /// called, the event is a refusal.
    pub(super) fn promise<T: 'static>(
        &self,
        event: impl FnOnce(Result<T, Refusal>) -> Event + Send + 'static,
    ) -> Done<T> {
        let mut promise = Promise {
            events: self.events.clone(),
            event: Some(event),
            answer: PhantomData,
        };
        Box::new(move |answer| promise.keep(answer))
    }
}

/// Sends exactly one event, when called or else when dropped.
struct Promise<T, F: FnOnce(Result<T, Refusal>) -> Event> {
    events: mpsc::Sender<Event>,
    event: Option<F>,
    answer: PhantomData<fn(T)>,
}

impl<T, F: FnOnce(Result<T, Refusal>) -> Event> Promise<T, F> {
    fn keep(&mut self, answer: Result<T, Refusal>) {
        if let Some(event) = self.event.take() {
            // If the metadata thread has ended, no operation waits for the answer.
            let _gone = self.events.send(event(answer));
        }
    }
}

impl<T, F: FnOnce(Result<T, Refusal>) -> Event> Drop for Promise<T, F> {
    fn drop(&mut self) {
        self.keep(Err(Refusal::unanswered()));
    }
}
