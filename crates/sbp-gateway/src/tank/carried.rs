//! Messages for partitions whose records carry their numbers, because those have gaps: a message that is produced gets the
//! number behind the last one.
//!
//! Each append states at which offset its first record has to come, so that nobody else's records come in between and a number
//! is given once. Those of one partition go one after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::ClientError;
use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_record::RecordsBuilder;
use sbp_tank::Produced;
use sbp_types::{Offset, StreamId};

use super::Shared;
use super::produce::outcome_of;
use crate::records::number_at;
use crate::tank::partitions::Partition;

/// For how long an append is tried that others come before, as those behind another gateway do: less than clients wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a partition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    offset: Offset,
    /// The number of the next message.
    number: u64,
}

impl End {
    /// The end when so many messages more are there.
    fn behind(self, messages: u32) -> Option<Self> {
        Some(Self {
            offset: self.offset.checked_add(i64::from(messages))?,
            number: self.number.checked_add(u64::from(messages))?,
        })
    }
}

/// Where partitions end, as far as it is known. Whoever appends holds the end of its partition.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<HashMap<StreamId, Arc<tokio::sync::Mutex<Option<End>>>>>);

impl Ends {
    fn of(&self, stream: StreamId) -> Arc<tokio::sync::Mutex<Option<End>>> {
        Arc::clone(self.0.lock().entry(stream).or_default())
    }
}

impl Shared {
    /// Stores a bundle behind the last message. `wanted` is the number that its first message has to get, if it has to;
    /// `records` makes its records, with numbers from the given one on, and returns how many they are. `None`: whether it is
    /// stored is not known.
    pub(super) async fn produce_carried(
        &self,
        partition: &Partition,
        wanted: Option<u64>,
        records: impl Fn(u64) -> Result<RecordsBuilder, String>,
    ) -> Result<Option<Produced>, String> {
        let held = self.ends.of(partition.stream);
        let mut held = held.lock().await;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // It is put back when it is certain.
            let end = match held.take() {
                Some(end) => end,
                None => match self.end_of(partition).await {
                    Ok(Some(end)) => end,
                    Ok(None) => return Err("the number of its last message is not known".to_owned()),
                    Err(error) => return Err(format!("its end cannot be found out: {error}")),
                },
            };
            if let Some(wanted) = wanted.filter(|wanted| *wanted != end.number) {
                *held = Some(end);
                return Ok(Some(match wanted < end.number {
                    true => Produced::Number,
                    false => Produced::Refused,
                }));
            }
            let records = records(end.number)?;
            match self.appends.append_at(partition.stream, records, end.offset).await {
                Ok(ack) => {
                    *held = end.behind(ack.records);
                    return Ok(Some(Produced::Done));
                }
                Err(error) if error.code() == ErrorCode::PRECONDITION_FAILED => {}
                Err(error) => return Ok(outcome_of(Err(error))),
            }
        }
        Err(format!(
            "others have appended before it, again and again for {PATIENCE:?}"
        ))
    }

    /// Where a partition ends. `None`: its last record is gone or has no number, so that no one can be given behind it.
    async fn end_of(&self, partition: &Partition) -> Result<Option<End>, ClientError> {
        let mut found = self.client.positions(&[partition.stream], None).await?;
        let latest = match found.pop() {
            Some(positions) => positions?.latest,
            None => return Ok(None),
        };
        let number = match u64::try_from(latest.0).ok().and_then(|end| end.checked_sub(1)) {
            Some(last) => number_at(&self.client, partition.stream, partition.numbers, last).await?,
            None => Some(partition.numbers.base().saturating_sub(1)),
        };
        Ok(number.and_then(|last| {
            Some(End {
                offset: latest,
                number: last.checked_add(1)?,
            })
        }))
    }
}
