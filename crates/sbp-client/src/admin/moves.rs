//! Range servers that are to be emptied, and open ranges that are spread among them.

use std::collections::BTreeMap;
use std::time::Duration;

use sbp_messages::{ErrorCode, Range, RangeCriteria, RangeId, RangeServerStatus, SealKind, ServerState};
use sbp_types::ServerId;
use tokio::time::sleep;

use super::{Move, SealOptions, plan_balance};
use crate::client::Client;
use crate::clock::now;
use crate::error::{ClientError, PeerOutcome};

/// How often it is asked how far a server is emptied.
const PAUSE: Duration = Duration::from_millis(500);
/// For how long nothing that is left may be able to leave, before nobody waits for it any longer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Client {
    /// Has a range server emptied: its ranges move to others. Waits until it holds nothing that counts, until nothing that is left
    /// can leave it as things are, or until the time is over; returns how it stands then. It stays marked in any case, until
    /// [`set_server_state`](Self::set_server_state) takes that back.
    ///
    /// # Errors
    ///
    /// That there is no such range server, or that a call failed.
    pub async fn drain(
        &self,
        server: ServerId,
        wait: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<RangeServerStatus, ClientError> {
        let deadline = wait.and_then(|wait| now().checked_add(wait));
        self.set_server_state(server, ServerState::DRAINING, timeout).await?;
        let mut stuck_since = None;
        loop {
            let status = self.range_server(server, timeout).await?;
            let left = status.held_range_cnt();
            let at = now();
            stuck_since = (status.stuck_range_cnt >= left).then(|| stuck_since.unwrap_or(at));
            let is_stuck = stuck_since.is_some_and(|since| at.saturating_duration_since(since) >= PATIENCE);
            if left == 0 || is_stuck || deadline.is_some_and(|deadline| at >= deadline) {
                return Ok(status);
            }
            sleep(PAUSE).await;
        }
    }

    /// A range server as the leading placement driver sees it.
    ///
    /// # Errors
    ///
    /// That there is no such range server, that nobody leads, or that the call failed.
    pub async fn range_server(
        &self,
        server: ServerId,
        timeout: Option<Duration>,
    ) -> Result<RangeServerStatus, ClientError> {
        let deadline = self.deadline(timeout);
        loop {
            let cluster = self.describe_cluster(timeout).await?;
            if let Some(servers) = cluster.range_servers {
                let is_it = |status: &RangeServerStatus| {
                    let of = status.range_server.as_ref();
                    of.is_some_and(|it| it.server_id == server)
                };
                let found = servers.into_iter().find(is_it);
                let what = format!("the placement driver knows no range server {server}");
                return found
                    .ok_or_else(|| ClientError::of_peer(ErrorCode::NOT_FOUND, what, PeerOutcome::Refused, None));
            }
            if now() >= deadline {
                return Err(nobody_leads());
            }
            sleep(PAUSE).await;
        }
    }

    /// The open ranges, at most so many, whose seals would spread the open ranges evenly.
    ///
    /// # Errors
    ///
    /// That nobody leads, or that a call failed.
    pub async fn moves_to_balance(&self, most: usize, timeout: Option<Duration>) -> Result<Vec<Move>, ClientError> {
        let cluster = self.describe_cluster(timeout).await?;
        if cluster.range_servers.is_none() {
            return Err(nobody_leads());
        }
        let streams = self.list_streams(timeout).await?;
        let of_stream = |stream_id| RangeCriteria {
            stream_id: Some(stream_id),
            range_server: None,
        };
        let criteria: Vec<_> = streams.iter().map(|stream| of_stream(stream.stream_id)).collect();
        // A stream may have been deleted since.
        let listed = self.list_ranges_by(&criteria, timeout).await?.into_iter().flatten();
        let ranges: Vec<Range> = listed.flatten().collect();
        Ok(plan_balance(&cluster, &ranges, most))
    }

    /// Seals open ranges, whose streams go on elsewhere or follow where they were. Returns for each the next range, in no order.
    ///
    /// # Errors
    ///
    /// When a call as a whole failed.
    pub async fn make_moves(
        &self,
        moves: &[Move],
        timeout: Option<Duration>,
    ) -> Result<Vec<(ServerId, Result<Range, ClientError>)>, ClientError> {
        let mut by_server: BTreeMap<ServerId, Vec<RangeId>> = BTreeMap::new();
        for Move { range, from } in moves {
            by_server.entry(*from).or_default().push(RangeId {
                stream_id: range.stream_id,
                range_index: Some(range.range_index),
                epoch: range.epoch,
                end_offset: None,
            });
        }
        let mut made = Vec::with_capacity(moves.len());
        for (from, ranges) in by_server {
            let options = SealOptions {
                kind: SealKind::PLACEMENT_DRIVER,
                avoid: vec![from],
                force: false,
            };
            let sealed = self.seal_ranges_with(&ranges, &options, timeout).await?;
            made.extend(sealed.into_iter().map(|result| (from, result)));
        }
        Ok(made)
    }
}

fn nobody_leads() -> ClientError {
    let what = "no placement driver leads at the moment: try again";
    ClientError::of_peer(ErrorCode::PD_NOT_LEADER, what, PeerOutcome::RefusedForNow, None)
}
