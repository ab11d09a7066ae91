//! Sends answers whose results may not fit into one frame.

use sbp_frame::CallId;
use sbp_messages::Message;
use sbp_session::Session;

use super::replier::Replier;

/// The bytes of results after which another frame is begun. A header may have 4 MiB, and a single result has little
/// more than the request that created its stream.
const FRAME_BYTES: usize = 2 << 20;

/// Sends results in as many frames as they need; the last one ends the answer. `weigh` estimates the bytes of a result
/// and must not be too low; `wrap` makes the message of a frame, and is told whether it is the last one.
pub(super) fn send_results<R, M: Message>(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    results: impl Iterator<Item = R>,
    weigh: impl Fn(&R) -> usize,
    wrap: impl Fn(Vec<R>, bool) -> M,
) {
    let (last, others) = split(results, weigh);
    for frame in others {
        replier.send(session, call, &wrap(frame, false), false, &[]);
    }
    replier.finish(session, call, &wrap(last, true));
}

/// Divides results into frames. Returns the results of the last frame, and those of each frame before it.
fn split<R>(results: impl Iterator<Item = R>, weigh: impl Fn(&R) -> usize) -> (Vec<R>, Vec<Vec<R>>) {
    let (mut frames, mut frame, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for result in results {
        let added = weigh(&result);
        if bytes + added > FRAME_BYTES && !frame.is_empty() {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
        bytes += added;
        frame.push(result);
    }
    (frame, frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cut_by_weight_and_none_is_lost() {
        let half = FRAME_BYTES / 2;
        for (weights, frames) in [
            (vec![], 1),
            (vec![1; 1_000], 1),
            (vec![half, half, 1], 2),
            (vec![FRAME_BYTES * 2, 1, FRAME_BYTES * 2], 3),
            (vec![half + 1; 5], 5),
        ] {
            let (last, others) = split(weights.clone().into_iter(), |weight| *weight);
            assert_eq!(others.len() + 1, frames, "{weights:?}");
            let joined: Vec<usize> = others.into_iter().flatten().chain(last).collect();
            assert_eq!(joined, weights);
        }
    }
}
