//! Answers of range servers on their way back to the worker.

use std::marker::PhantomData;
use std::sync::mpsc;

use super::{Event, Worker};
use crate::refusal::{Done, Refusal};

impl Worker {
    /// Something to be called when a range server has answered. Given up uncalled, it counts as a refusal.
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

/// Sends one event, whatever happens.
struct Promise<T, F: FnOnce(Result<T, Refusal>) -> Event> {
    events: mpsc::Sender<Event>,
    event: Option<F>,
    answer: PhantomData<fn(T)>,
}

impl<T, F: FnOnce(Result<T, Refusal>) -> Event> Promise<T, F> {
    fn keep(&mut self, answer: Result<T, Refusal>) {
        if let Some(event) = self.event.take() {
            // Without a worker no operation waits for the answer.
            let _gone = self.events.send(event(answer));
        }
    }
}

impl<T, F: FnOnce(Result<T, Refusal>) -> Event> Drop for Promise<T, F> {
    fn drop(&mut self) {
        self.keep(Err(Refusal::unanswered()));
    }
}
