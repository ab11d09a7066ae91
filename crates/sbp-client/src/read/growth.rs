//! Waiting until streams grow, without their records.

use std::time::Duration;

use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc::UnboundedSender;

use super::positions::{ENTRIES, bounds_of, is_elsewhere};
use crate::client::Client;
use crate::error::ClientError;
use crate::read::answer::RefusedEntry;
use crate::read::plan::Wanted;
use crate::read::request::by_server;

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
                let mut growths = client.wait_at_one(asked, max_wait).await;
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

    /// Waits at the server that has these streams.
    async fn wait_at_one(&self, asked: Vec<Wanted>, max_wait: Duration) -> Vec<Growth> {
        let deadline = self.deadline(None) + max_wait;
        let answered = self.ask_positions(&asked, max_wait, deadline).await;
        let mut growths = Vec::with_capacity(asked.len());
        let (results, server) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                let failed = asked.iter().map(|wanted| Growth {
                    stream: wanted.stream,
                    from: wanted.from,
                    end: Err(error.clone().with_stream(wanted.stream)),
                    is_last: false,
                });
                return failed.collect();
            }
        };
        for (wanted, result) in asked.iter().zip(results) {
            let end = match result {
                Ok(at) => Ok(at.high_watermark),
                Err(RefusedEntry { status, .. }) => {
                    if is_elsewhere(status.code) {
                        // What comes of it shows when it is asked for again.
                        drop(self.pool().refresh(wanted.stream, deadline).await);
                    }
                    Err(ClientError::entry(&status, Some(&server)).with_stream(wanted.stream))
                }
            };
            growths.push(Growth {
                stream: wanted.stream,
                from: wanted.from,
                end,
                is_last: false,
            });
        }
        growths
    }
}
