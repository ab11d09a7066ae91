//! Bundles of TANK: what is read is within its limits, and is written and read again equal.

use sbp_tank::{Bundle, MAX_BUNDLE, MAX_KEY, Message, Numbering, encode_bundle, encode_sparse_bundle};

/// The first eight bytes are the number of the first message; the rest is a bundle.
pub fn run(data: &[u8]) {
    let Some((first, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let base = u64::from_le_bytes(*first);
    let Ok(bundle) = Bundle::decode(bytes) else { return };
    let Ok(span) = Numbering::new(Some(base)).number(&bundle) else {
        return;
    };
    let Ok(messages) = bundle.messages(span.first).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    assert_eq!(messages.len(), usize::try_from(bundle.count()).unwrap_or(usize::MAX));
    assert_eq!(messages.first().map(|message| message.sequence), Some(span.first));
    assert_eq!(messages.last().map(|message| message.sequence), Some(span.last));
    assert!(messages.is_sorted_by(|one, next| one.sequence < next.sequence));
    assert!(
        messages
            .iter()
            .all(|message| message.key.is_none_or(|key| key.len() <= MAX_KEY))
    );
    let held: usize = messages.iter().map(|message| message.content.len()).sum();
    assert!(held <= MAX_BUNDLE);
    again(&messages, bundle.span().is_some());
}

/// Messages written anew are the same when they are read.
fn again(messages: &[Message<'_>], is_sparse: bool) {
    let written = match is_sparse {
        true => encode_sparse_bundle(messages),
        false => encode_bundle(messages),
    };
    // What was compressed well may not fit into a bundle without its times left out as they were.
    let Ok(written) = written else { return };
    let bundle = Bundle::decode(&written).expect("our own bundle");
    let first = messages.first().map_or(0, |message| message.sequence);
    let read: Vec<_> = bundle
        .messages(first)
        .map(|message| message.expect("our own message"))
        .collect();
    assert_eq!(read, messages);
}

/// Bundles of one message and of many, with keys, times, gaps, and compressed.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let content = [7; 1_200];
    let message = |sequence: u64| Message {
        sequence,
        time_ms: 1_700_000_000_000 + sequence / 3,
        key: (sequence % 4 == 1).then_some(&b"key"[..]),
        content: &b"content"[..usize::try_from(sequence % 7).unwrap_or_default()],
    };
    let mut bundles = Vec::new();
    for count in [1, 2, 15, 16, 60] {
        let dense: Vec<_> = (1..=count).map(message).collect();
        let gaps: Vec<_> = (1..=count).map(|number| message(number * number)).collect();
        bundles.push(encode_bundle(&dense).expect("a bundle"));
        bundles.push(encode_sparse_bundle(&dense).expect("a bundle"));
        bundles.push(encode_sparse_bundle(&gaps).expect("a bundle"));
    }
    let mut long = message(5);
    long.content = &content;
    bundles.push(encode_bundle(&[long]).expect("a bundle"));
    bundles.push(encode_sparse_bundle(&[message(2), long]).expect("a bundle"));
    let seeds = bundles.iter().map(|bundle| [&5_u64.to_le_bytes()[..], bundle].concat());
    seeds.collect()
}
