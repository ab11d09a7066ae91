//! A broker as a peer that is asked: how calls to it end, and what they bring.

use bytes::Bytes;
use sbp_tank::{Answer, ClientConfig, ConsumedPartition};

use super::error::TankErrorKind;
use crate::calls;

/// Bundles that are taken out of one answer: each takes memory of its own, and may have no more than a byte. Those behind them
/// are asked for again.
const MOST_BUNDLES: usize = 1 << 20;
/// Bytes of bundles that are taken out of one answer, unless the first one alone has more. A broker is asked for fewer, and may
/// answer more all the same; those behind them are asked for again.
const MOST_BYTES: usize = 128 << 20;

/// What a Consume brought.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) partitions: Vec<ConsumedPartition>,
    /// Bundles in their order, each with the place of its partition.
    pub(super) bundles: Vec<(usize, Bytes)>,
    /// Bundles that were cut: the place of the partition, and the bundle's length; 0: unknown.
    pub(super) cut: Vec<(usize, usize)>,
    /// Bytes of the bundles.
    pub(super) length: usize,
    /// No more is taken.
    pub(super) is_full: bool,
}

impl Fetched {
    pub(super) fn add(&mut self, place: usize, bundle: Bytes) {
        let length = self.length.saturating_add(bundle.len());
        let is_too_much = length > MOST_BYTES && !self.bundles.is_empty();
        self.is_full |= is_too_much || self.bundles.len() >= MOST_BUNDLES;
        if !self.is_full {
            self.length = length;
            self.bundles.push((place, bundle));
        }
    }

    pub(super) fn add_cut(&mut self, place: usize, length: usize) {
        if !self.is_full {
            self.cut.push((place, length));
        }
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    Answered(Answer),
    Fetched(Fetched),
    /// There is no connection to the broker, or none any more.
    Lost {
        why: String,
        bytes_sent: bool,
    },
    /// The broker broke the protocol before the answer was complete.
    Broken {
        kind: TankErrorKind,
        why: String,
    },
    /// The request cannot be sent.
    Unfit(String),
    /// The client was closed before the request was sent.
    Closed,
}

/// A request, and who waits for its answer.
pub(super) type Call = calls::Call<TankPeer>;
/// What a connection is told.
pub(super) type Command = calls::Command<TankPeer>;
/// What a broker's client shares with its connections.
pub(super) type Shared = calls::Shared<TankPeer>;

/// A broker, to be asked.
#[derive(Debug)]
pub(super) struct TankPeer(pub(super) ClientConfig);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_answer_takes_up_is_bounded_in_bundles_too() {
        let mut fetched = Fetched::default();
        for place in 0..MOST_BUNDLES + 9 {
            fetched.add(place, Bytes::new());
        }
        fetched.add_cut(MOST_BUNDLES + 9, 0);
        // Those behind the last one are asked for again: none of them is taken without those in front of it.
        assert_eq!(fetched.bundles.last().map(|(place, _)| *place), Some(MOST_BUNDLES - 1));
        assert_eq!(fetched.cut, []);
    }

    #[test]
    fn what_one_answer_takes_up_is_bounded_in_bytes() {
        let bundle = Bytes::from(vec![0; MOST_BYTES / 2]);
        let mut fetched = Fetched::default();
        for place in 0..4 {
            fetched.add(place, bundle.clone());
        }
        // One that would fit does not come without those in front of it.
        fetched.add(4, Bytes::from_static(b"x"));
        fetched.add_cut(5, 0);
        let places: Vec<_> = fetched.bundles.iter().map(|(place, _)| *place).collect();
        assert_eq!(
            (places.as_slice(), fetched.cut.as_slice()),
            ([0, 1].as_slice(), [].as_slice())
        );
        // The first one is taken whatever its length is: else nothing would ever come.
        let mut fetched = Fetched::default();
        fetched.add(0, Bytes::from(vec![0; MOST_BYTES + 1]));
        fetched.add(0, bundle);
        assert_eq!(fetched.bundles.len(), 1);
    }
}
