//! Messages of Pravega's controller: what is read of bytes is written in one way, and read again as it was.

use prost::Message;
use sbp_pravega::controller::{
    Continuation, Cut, DelegationToken, Exists, GroupConfig, GroupInfo, GroupMade, NodeUri, ScopeInfo, Scopes,
    ScopesRequest, SegmentInfo, SegmentLocations, SegmentRanges, SegmentsAt, Status, StreamConfig, StreamInfo, Streams,
    StreamsRequest, Successors,
};

use crate::pravega::bytes;

/// What real peers said.
const VECTORS: &str = include_str!("../../sbp-pravega/tests/vectors/controller.hex");

/// Each kind of message.
const KINDS: [fn(&[u8]); 21] = [
    read::<ScopeInfo>,
    read::<StreamConfig>,
    read::<StreamInfo>,
    read::<SegmentInfo>,
    read::<SegmentsAt>,
    read::<StreamsRequest>,
    read::<ScopesRequest>,
    read::<Cut>,
    read::<GroupInfo>,
    read::<Status>,
    read::<SegmentRanges>,
    read::<NodeUri>,
    read::<SegmentLocations>,
    read::<Streams>,
    read::<Scopes>,
    read::<Successors>,
    read::<Exists>,
    read::<Continuation>,
    read::<DelegationToken>,
    read::<GroupMade>,
    read::<GroupConfig>,
];

/// The first byte says which kind of message the others are.
pub fn run(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    if let Some(read) = KINDS.get(usize::from(kind) % KINDS.len()) {
        read(bytes);
    }
}

fn read<M: Message + Default>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let written = message.encode_to_vec();
    let again = M::decode(written.as_slice()).expect("what was written is read");
    assert_eq!(again.encode_to_vec(), written, "it is written in one way");
}

/// What real peers said, read as each kind of message.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let said = VECTORS.lines().filter_map(|line| line.rsplit(' ').next());
    let said: Vec<_> = said.map(bytes).filter(|said| !said.is_empty()).collect();
    let kinds = 0..u8::try_from(KINDS.len()).unwrap_or(u8::MAX);
    kinds
        .flat_map(|kind| said.iter().map(move |said| [&[kind], said.as_slice()].concat()))
        .collect()
}
