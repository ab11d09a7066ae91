//! Appends of several entries of which some were refused for the moment.

use std::sync::Arc;
use std::time::Instant;

use sbp_messages::{AppendResponse, Retry};
use smallvec::smallvec;

use super::Context;
use crate::codes;
use crate::error::ClientError;
use crate::failure::Cause;
use crate::outcome::AppendOutcome;
use crate::submission::failed::{NextStep, after_failed_append};
use crate::submission::gather::Gather;
use crate::submission::{AppendOp, Reply, Submissions};

/// The entries that may succeed later or elsewhere, and certainly were not stored; `None` when there are none. Single
/// entries are judged as their append is.
pub(super) fn to_repeat(op: &AppendOp, answer: &AppendResponse, now: Instant) -> Option<Vec<(usize, Cause)>> {
    if op.entries.len() < 2 || op.deadline <= now || answer.append_responses.iter().all(|one| one.status.is_success()) {
        return None;
    }
    let repeats: Vec<_> = answer
        .append_responses
        .iter()
        .filter(|result| {
            let rule = codes::rule(result.status.code);
            !result.status.is_success() && rule.retry != Retry::Never && !rule.may_have_been_done
        })
        .filter_map(|result| {
            let place = usize::try_from(result.request_index).ok()?;
            Some((place, Cause::refused(&result.status, answer.throttle_time_ms)))
        })
        .collect();
    (!repeats.is_empty()).then_some(repeats)
}

/// Makes the entries again, each as an append of its own. `outcome` has what became of the others.
pub(super) fn repeat(
    context: &Context,
    op: AppendOp,
    arena: &[u8],
    outcome: AppendOutcome,
    repeats: Vec<(usize, Cause)>,
) {
    let channel = &context.channel;
    let bytes = op.bytes();
    let mut results: Vec<_> = outcome.entries.into_iter().map(Some).collect();
    for (place, _) in &repeats {
        if let Some(result) = results.get_mut(*place) {
            *result = None;
        }
    }
    let gather = Gather::new(results, op.reply);
    let mut repeated_bytes = 0;
    // Each counts for itself from now on.
    channel.budget.add(repeats.len().saturating_sub(1), 0);
    for (place, cause) in repeats {
        let Some(entry) = op.entries.get(place).cloned() else {
            continue;
        };
        repeated_bytes += entry.body.len();
        let failure = context.failure(cause);
        let attempts = op.attempts + 1;
        let stream = entry.stream;
        let part = AppendOp {
            entries: smallvec![entry],
            deadline: op.deadline,
            reply: Reply::part(Arc::clone(&gather), smallvec![place]),
            attempts,
            since: op.since,
            refusal: Some(Box::new(failure.clone())),
        };
        let step = after_failed_append(&failure, attempts, op.deadline, &channel.config.retry, &channel.retries);
        match step {
            NextStep::Fail(error) => channel.end_append(part, error.with_stream(stream)),
            // Only a lost connection leads there, and this one answered.
            NextStep::NextConnection => channel.end_append(part, ClientError::closed().with_stream(stream)),
            NextStep::Again { wait, at } => {
                let mut again = Submissions::new();
                again.adopt(part, arena);
                channel.clone().submit_again(again, wait, at);
            }
        }
    }
    channel.budget.release(0, bytes.saturating_sub(repeated_bytes));
}
