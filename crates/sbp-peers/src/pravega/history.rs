//! The segments of a stream, one after the other as it was scaled.

use std::collections::{HashMap, HashSet, VecDeque};

use sbp_pravega::{Segment, SegmentId, SegmentInfo};
use tokio::task::JoinSet;

use super::client::Pravega;
use super::error::{PravegaError, PravegaErrorKind};
use super::layout::{Follower, StreamName};

/// Segments of one stream that are looked at.
const SEGMENTS: usize = 1_000_000;
/// Segments that are asked about at the same time.
const SIDE_BY_SIDE: usize = 64;

/// A segment of a stream, open or sealed.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamSegment {
    /// The segment.
    pub segment: Segment,
    /// What the server says of it.
    pub info: SegmentInfo,
    /// The segments whose keys it has taken over: they are sealed, and read before it.
    pub follows: Vec<SegmentId>,
    /// The positions of the keys that belong to it, from the first to below the second. Of segments with which a stream begins, and
    /// that are sealed, nobody tells them.
    pub keys: Option<(f64, f64)>,
}

/// A segment, and those that follow it.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) segment: Segment,
    pub(super) info: SegmentInfo,
    pub(super) followers: Vec<Follower>,
}

impl Pravega {
    /// All segments of a stream that there are, from those with which it begins up to the open ones; each behind those that it
    /// follows.
    ///
    /// # Errors
    /// [`PravegaError`]: there is no such stream.
    pub async fn segments(&self, stream: &StreamName) -> Result<Vec<StreamSegment>, PravegaError> {
        let first = self.first_segments(stream).await?;
        let found = self.walk(first.into_iter().map(|(segment, _)| segment)).await?;
        let followers = found.iter().flat_map(|walked| &walked.followers);
        let mut known: HashMap<_, _> = followers
            .map(|follower| (follower.owned.segment.id, follower.clone()))
            .collect();
        let is_open = |walked: &Walked| !walked.info.is_sealed && !known.contains_key(&walked.segment.id);
        if found.iter().any(is_open) {
            for owned in self.current_segments(stream).await? {
                let id = owned.segment.id;
                let follows = Vec::new();
                known.entry(id).or_insert(Follower { owned, follows });
            }
        }
        let segments = found.into_iter().map(|walked| {
            let known = known.remove(&walked.segment.id);
            let keys = known.as_ref().map(|known| (known.owned.low, known.owned.high));
            StreamSegment {
                follows: known.map(|known| known.follows).unwrap_or_default(),
                segment: walked.segment,
                info: walked.info,
                keys,
            }
        });
        Ok(segments.collect())
    }

    /// These segments and all that follow them.
    pub(super) async fn walk(&self, first: impl Iterator<Item = Segment>) -> Result<Vec<Walked>, PravegaError> {
        let mut known = HashSet::new();
        let mut found = Vec::new();
        let mut left: VecDeque<Segment> = first.collect();
        while let Some(segment) = left.pop_front() {
            if !known.insert(segment.id) {
                continue;
            }
            if known.len() > SEGMENTS {
                let what = format!("the stream has more than {SEGMENTS} segments");
                return Err(PravegaError::new(PravegaErrorKind::Limit, what).about(&segment));
            }
            let info = self.segment_info(&segment).await?;
            let followers = match info.is_sealed {
                true => self.followers(&segment).await?,
                false => Vec::new(),
            };
            left.extend(followers.iter().map(|follower| follower.owned.segment.clone()));
            found.push(Walked {
                segment,
                info,
                followers,
            });
        }
        Ok(found)
    }

    /// What segments are, many of them asked about at the same time; `None` in place of one that there is not.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub async fn segment_infos(&self, segments: Vec<Segment>) -> Result<Vec<Option<SegmentInfo>>, PravegaError> {
        let mut found: Vec<Option<SegmentInfo>> = segments.iter().map(|_| None).collect();
        let mut left = segments.into_iter().enumerate();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < SIDE_BY_SIDE
                && let Some((place, segment)) = left.next()
            {
                let client = self.clone();
                let asking = async move { (place, client.segment_info(&segment).await) };
                asked.spawn_on(asking, self.runtime());
            }
            match asked.join_next().await {
                None => return Ok(found),
                Some(Ok((place, Ok(info)))) => {
                    if let Some(one) = found.get_mut(place) {
                        *one = Some(info);
                    }
                }
                Some(Ok((_, Err(error)))) if error.kind() == PravegaErrorKind::UnknownName => {}
                Some(Ok((_, Err(error)))) => return Err(error),
                // Nobody aborts it: it panicked, or the runtime ends.
                Some(Err(ended)) => {
                    return Err(PravegaError::new(PravegaErrorKind::Lost, ended.to_string()).for_good());
                }
            }
        }
    }
}
