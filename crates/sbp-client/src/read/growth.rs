//! Waiting until streams grow, without their records.

use std::sync::Arc;
use std::time::Duration;

use sbp_frame::OpCode;
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::fetch::Answers;
use super::positions::{ENTRIES, bounds_of, is_elsewhere};
use crate::channel::Channel;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::read::answer::{Part, RefusedEntry};
use crate::read::plan::{self, Wanted};
use crate::read::request::{by_server, open, post_fetch};
use crate::retry::Repeat;

/// What became of a stream that was to grow beyond an offset.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The stream.
    pub stream: StreamId,
    /// The offset.
    pub from: Offset,
    /// The stream's confirmed end: as it was where the time is over, or nothing more is to come where it was asked for. An
    /// error where it cannot be waited for there.
    pub end: Result<Offset, ClientError>,
    /// Whether it is the last that its server says on this question.
    pub is_last: bool,
}

impl Client {
    /// Has each server that has some of these streams wait until one of them has a record at its offset, for `max_wait` at
    /// most, and sends what it then says of all that it was asked for. Returns how many questions there are.
    pub fn await_growth(
        &self,
        places: &[(StreamId, Offset)],
        max_wait: Duration,
        told: &UnboundedSender<Growth>,
    ) -> usize {
        let wanted = |&(stream, from): &(StreamId, Offset)| Wanted {
            from,
            ..bounds_of(stream, None)
        };
        let entries: Vec<_> = places.iter().map(wanted).collect();
        let requests = by_server(self.pool(), entries.iter().copied().enumerate(), ENTRIES);
        let questions = requests.len();
        for request in requests {
            let asked = request.places.iter().filter_map(|&place| entries.get(place).copied());
            let (client, asked, told) = (self.clone(), asked.collect::<Vec<_>>(), told.clone());
            self.runtime().spawn(async move {
                let mut growths = client.wait_at(&request.server, &asked, max_wait).await;
                if let Some(last) = growths.last_mut() {
                    last.is_last = true;
                }
                for growth in growths {
                    // Where nobody waits any more, nobody is told.
                    drop(told.send(growth));
                }
            });
        }
        questions
    }

    /// Waits at the server that has these streams. Each is told of once.
    async fn wait_at(&self, server: &Arc<Channel>, asked: &[Wanted], max_wait: Duration) -> Vec<Growth> {
        let charge = self.core().credit.charge(1, 1).await;
        server.throttles.wait(OpCode::FETCH, None).await;
        let request = plan::request(asked.iter().copied(), max_wait, 1, charge.bytes());
        let patience = self
            .pool()
            .bounds(asked.first().map(Wanted::place), self.config().timeout);
        let (sender, events) = mpsc::unbounded_channel();
        let mut answers = Answers::new(server, events);
        post_fetch(server, &request, patience, charge, (0, sender), None);
        let places: Vec<_> = (0..asked.len()).collect();
        let mut ends: Vec<Option<Result<Offset, ClientError>>> = vec![None; asked.len()];
        let mut failed = None;
        while let Some(event) = answers.events.recv().await {
            let opened = match open(&places, event) {
                Ok(opened) => opened,
                Err(failure) => {
                    answers.is_over = true;
                    failed = Some(ClientError::from_failure(&failure, Repeat::Harmless, false, 1));
                    break;
                }
            };
            server.throttles.note(OpCode::FETCH, opened.throttle_ms, now());
            for (place, part) in opened.parts {
                if let (Some(wanted), Some(end)) = (asked.get(place), ends.get_mut(place)) {
                    *end = Some(self.end_of(wanted, part, &opened.endpoint).await);
                }
            }
            if opened.is_last {
                answers.is_over = true;
                break;
            }
        }
        let untold = failed.unwrap_or_else(|| ClientError::protocol("a FETCH was answered without a result"));
        let told = asked.iter().zip(ends).map(|(wanted, end)| Growth {
            stream: wanted.stream,
            from: wanted.from,
            end: end.unwrap_or_else(|| Err(untold.clone().with_stream(wanted.stream))),
            is_last: false,
        });
        told.collect()
    }

    /// What a server says of a stream's end. One that has it no more says where it is not: whoever asks next asks elsewhere.
    async fn end_of(&self, wanted: &Wanted, part: Part, endpoint: &Arc<str>) -> Result<Offset, ClientError> {
        match part.outcome {
            Ok(at) => Ok(at.high_watermark),
            Err(RefusedEntry { status, .. }) => {
                if is_elsewhere(status.code) {
                    // What comes of it shows when it is asked for again.
                    drop(self.pool().refresh(wanted.stream, self.deadline(None)).await);
                }
                Err(ClientError::entry(&status, Some(endpoint)).with_stream(wanted.stream))
            }
        }
    }
}
