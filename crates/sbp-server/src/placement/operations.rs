//! The operations under way: which request each belongs to, and which wait for an earlier one on the same stream.

use std::collections::{HashMap, VecDeque};

use sbp_types::StreamId;

use super::effects::Outcome;
use super::request::{Outcomes, Task};
use crate::refusal::{Done, Refusal};

/// One entry of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OperationId {
    request: u64,
    entry: usize,
    /// The stream on which it works; `None` if it need not wait for other operations.
    stream: Option<StreamId>,
}

/// The requests under way and the queue of each stream.
///
/// Operations on one stream are done one after the other, in the order of their arrival; those on different streams at
/// the same time.
#[derive(Default)]
pub(super) struct Operations {
    next: u64,
    open: HashMap<u64, OpenRequest>,
    /// Streams with an operation under way, each with the operations that wait for it.
    turns: HashMap<StreamId, VecDeque<(OperationId, Task)>>,
    /// Operations that can be started.
    ready: VecDeque<(OperationId, Task)>,
    /// The outcomes of operations whose last step has another one.
    instead: HashMap<OperationId, Result<Outcome, Refusal>>,
}

struct OpenRequest {
    done: Done<Outcomes>,
    results: Vec<Option<Result<Outcome, Refusal>>>,
    missing: usize,
}

impl Operations {
    /// Takes a request. Entries that were refused when the request was read are results already.
    pub(super) fn admit(&mut self, done: Done<Outcomes>, tasks: Vec<Result<Task, Refusal>>) {
        let request = self.next;
        self.next += 1;
        let mut open = OpenRequest {
            done,
            results: Vec::with_capacity(tasks.len()),
            missing: 0,
        };
        for (entry, task) in tasks.into_iter().enumerate() {
            match task {
                Err(refusal) => open.results.push(Some(Err(refusal))),
                Ok(task) => {
                    open.results.push(None);
                    open.missing += 1;
                    let stream = task.stream();
                    self.queue(OperationId { request, entry, stream }, task);
                }
            }
        }
        if open.missing == 0 {
            open.answer();
        } else {
            self.open.insert(request, open);
        }
    }

    fn queue(&mut self, id: OperationId, task: Task) {
        match id.stream.map(|stream| self.turns.entry(stream)) {
            Some(std::collections::hash_map::Entry::Occupied(mut turn)) => turn.get_mut().push_back((id, task)),
            Some(std::collections::hash_map::Entry::Vacant(turn)) => {
                turn.insert(VecDeque::new());
                self.ready.push_back((id, task));
            }
            None => self.ready.push_back((id, task)),
        }
    }

    /// Takes an operation that can be started.
    pub(super) fn take_ready(&mut self) -> Option<(OperationId, Task)> {
        self.ready.pop_front()
    }

    /// Notes the result of an operation. Answers its request if it was the last one, and makes the stream's next
    /// operation ready.
    pub(super) fn finish(&mut self, id: OperationId, result: Result<Outcome, Refusal>) {
        let instead = self.instead.remove(&id);
        let result = result.and_then(|outcome| instead.unwrap_or(Ok(outcome)));
        if let Some(stream) = id.stream
            && let Some(waiting) = self.turns.get_mut(&stream)
        {
            match waiting.pop_front() {
                Some(next) => self.ready.push_back(next),
                None => {
                    self.turns.remove(&stream);
                }
            }
        }
        let Some(open) = self.open.get_mut(&id.request) else {
            return;
        };
        if let Some(place) = open.results.get_mut(id.entry)
            && place.replace(result).is_none()
        {
            open.missing -= 1;
        }
        if open.missing == 0
            && let Some(open) = self.open.remove(&id.request)
        {
            open.answer();
        }
    }

    /// If the operation succeeds, this is its result, whatever its last step's is.
    pub(super) fn answer_instead(&mut self, id: OperationId, result: Result<Outcome, Refusal>) {
        self.instead.insert(id, result);
    }

    /// Whether all requests are answered.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Answers all open requests with this refusal.
    pub(super) fn give_up(&mut self, refusal: &Refusal) {
        for (_, open) in self.open.drain() {
            (open.done)(Err(refusal.clone()));
        }
        self.turns.clear();
        self.ready.clear();
        self.instead.clear();
    }
}

impl OpenRequest {
    fn answer(self) {
        let results: Outcomes = self
            .results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(Refusal::unanswered())))
            .collect();
        (self.done)(Ok(results));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use sbp_messages::ErrorCode;
    use sbp_types::Offset;

    use super::*;

    fn trim(stream: i64, start: i64) -> Result<Task, Refusal> {
        Ok(Task::Trim {
            stream: StreamId(stream),
            start: Offset(start),
        })
    }

    fn starts(operations: &mut Operations) -> Vec<(OperationId, i64)> {
        std::iter::from_fn(|| operations.take_ready())
            .map(|(id, task)| match task {
                Task::Trim { start, .. } => (id, start.0),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn caller() -> (Done<Outcomes>, mpsc::Receiver<Result<Outcomes, Refusal>>) {
        let (sender, receiver) = mpsc::channel();
        (Box::new(move |answer| sender.send(answer).unwrap()), receiver)
    }

    #[test]
    fn operations_of_one_stream_take_turns_and_others_do_not_wait() {
        let mut operations = Operations::default();
        let (first, first_answer) = caller();
        operations.admit(first, vec![trim(1, 10), trim(2, 20), trim(1, 11)]);
        let (second, second_answer) = caller();
        operations.admit(second, vec![trim(1, 12)]);
        let ready = starts(&mut operations);
        assert_eq!(ready.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [10, 20]);
        operations.finish(ready[1].0, Ok(Outcome::Done));
        assert_eq!(starts(&mut operations), [], "stream 1 is still busy");
        operations.finish(ready[0].0, Err(Refusal::invalid("no")));
        let ready = starts(&mut operations);
        assert_eq!(ready[0].1, 11);
        assert!(first_answer.try_recv().is_err(), "one entry is missing");
        operations.finish(ready[0].0, Ok(Outcome::Done));
        let results = first_answer.try_recv().unwrap().unwrap();
        assert_eq!(
            results.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [false, true, true],
            "in the order of the request"
        );
        let ready = starts(&mut operations);
        assert_eq!(ready[0].1, 12);
        operations.finish(ready[0].0, Ok(Outcome::Done));
        assert_eq!(second_answer.try_recv().unwrap().unwrap().len(), 1);
        assert!(operations.is_empty() && operations.turns.is_empty());
    }

    #[test]
    fn a_request_without_sound_entries_is_answered_at_once() {
        let mut operations = Operations::default();
        let (done, answer) = caller();
        operations.admit(done, vec![Err(Refusal::no_stream(StreamId(0)))]);
        let results = answer.try_recv().unwrap().unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().code, ErrorCode::NOT_FOUND);
        assert!(operations.is_empty());
    }

    #[test]
    fn what_is_given_up_is_told_once() {
        let mut operations = Operations::default();
        let (done, answer) = caller();
        operations.admit(done, vec![trim(1, 1), trim(1, 2)]);
        let ready = starts(&mut operations);
        operations.give_up(&Refusal::unanswered());
        assert!(answer.try_recv().unwrap().is_err());
        operations.finish(ready[0].0, Ok(Outcome::Done));
        assert_eq!(starts(&mut operations), []);
    }
}
