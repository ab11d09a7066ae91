use proptest::prelude::*;

use super::*;
use crate::numbering::Numbering;

/// A message as tests own it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    sequence: u64,
    time_ms: u64,
    key: Option<Vec<u8>>,
    content: Vec<u8>,
}

impl Owned {
    fn borrowed(&self) -> Message<'_> {
        Message {
            sequence: self.sequence,
            time_ms: self.time_ms,
            key: self.key.as_deref(),
            content: &self.content,
        }
    }
}

fn message(sequence: u64, content: &[u8]) -> Message<'_> {
    Message {
        sequence,
        time_ms: 1_700_000_000_000,
        key: None,
        content,
    }
}

fn decode(bytes: &[u8], first: u64) -> Result<Vec<Owned>, Fault> {
    let bundle = Bundle::decode(bytes)?;
    let messages = bundle.messages(first).map(|message| {
        message.map(|message| Owned {
            sequence: message.sequence,
            time_ms: message.time_ms,
            key: message.key.map(<[u8]>::to_vec),
            content: message.content.to_vec(),
        })
    });
    messages.collect()
}

fn numbers(bytes: &[u8], first: u64) -> Result<Vec<u64>, Fault> {
    Ok(decode(bytes, first)?.iter().map(|message| message.sequence).collect())
}

#[test]
fn fifteen_messages_are_counted_in_the_flags_and_sixteen_behind_them() {
    for (count, head) in [
        (1, &[0x04][..]),
        (15, &[0x3c]),
        (16, &[0x00, 16]),
        (300, &[0x00, 0xac, 2]),
    ] {
        let messages = vec![message(0, b"x"); count];
        let bundle = encode_bundle(&messages).unwrap();
        assert!(
            bundle.starts_with(head),
            "{count} messages begin with {:02x?}",
            &bundle[..3]
        );
        assert_eq!(numbers(&bundle, 7), Ok((7..7 + count as u64).collect()));
    }
}

#[test]
fn sparse_bundles_have_their_numbers() {
    let cases: [&[u64]; 6] = [
        &[100],
        &[100, 101],
        &[100, 4_000_000_000],
        &[0, 1, 2, 3],
        &[5, 6, 9, 10, 400, 401],
        &[u64::MAX - 2, u64::MAX - 1, u64::MAX],
    ];
    for case in cases {
        let messages: Vec<_> = case.iter().map(|sequence| message(*sequence, b"x")).collect();
        let bundle = encode_sparse_bundle(&messages).unwrap();
        assert_eq!(bundle[0] & SPARSE, SPARSE);
        assert_eq!(numbers(&bundle, 9), Ok(case.to_vec()));
        let (first, last) = (case[0], case[case.len() - 1]);
        assert_eq!(Bundle::decode(&bundle).unwrap().span(), Some(Span { first, last }));
    }
}

#[test]
fn numbers_that_do_not_rise_are_not_written() {
    for case in [
        &[2, 1][..],
        &[1, 1],
        &[1, 3, 2, 4],
        &[0, 1 << 40],
        &[0, 1 << 40, 1 << 41],
    ] {
        let messages: Vec<_> = case.iter().map(|sequence| message(*sequence, b"x")).collect();
        assert_eq!(encode_sparse_bundle(&messages), Err(EncodeError::Numbers), "{case:?}");
    }
}

/// Sparse bundles by hand: messages of two bytes, with the flags and numbers that a case is about.
#[test]
fn numbers_that_do_not_rise_are_not_read() {
    let head = |count: u8, between: u8| [&[0x40 | count << 2][..], &10_u64.to_le_bytes(), &[between]].concat();
    type Case = (u8, u8, &'static [u8], Result<Vec<u64>, Fault>);
    let cases: [Case; 6] = [
        (2, 0, &[0x02, 0, 0x02, 0], Ok(vec![10, 11])),
        (3, 1, &[0x02, 0, 0x06, 0, 0x02, 0], Ok(vec![10, 11, 12])),
        (3, 5, &[0x02, 0, 0x02, 3, 0, 0x02, 0], Ok(vec![10, 14, 16])),
        // The one between is where the last is, and behind it.
        (3, 5, &[0x02, 0, 0x02, 5, 0, 0x02, 0], Err(Fault::Numbers)),
        (3, 5, &[0x02, 0, 0x02, 9, 0, 0x02, 0], Err(Fault::Numbers)),
        // Three messages have no place between 10 and 11.
        (3, 0, &[0x02, 0, 0x06, 0, 0x02, 0], Err(Fault::Numbers)),
    ];
    for (count, between, messages, expected) in cases {
        let bundle = [&head(count, between)[..], messages].concat();
        assert_eq!(numbers(&bundle, 0), expected, "{count} messages, {between} between");
    }
    let beyond = [&[0x48][..], &u64::MAX.to_le_bytes(), &[0], &[0x02, 0, 0x02, 0]].concat();
    assert_eq!(
        numbers(&beyond, 0),
        Err(Fault::Numbers),
        "behind the last number there is"
    );
}

#[test]
fn what_is_no_bundle_is_refused() {
    let long = {
        let mut bytes = vec![0x01, 0xff, 0xff, 0xff, 0xff, 0x0f];
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        bytes
    };
    let bomb = {
        let packed = snap::raw::Encoder::new().compress_vec(&vec![0; 1 << 20]).unwrap();
        assert!((1 << 20) / packed.len() > 20, "Snappy makes it {} bytes", packed.len());
        // What is left of it still claims a megabyte.
        [&[0x05][..], &packed[..packed.len() / 2]].concat()
    };
    let cases: [(&str, &[u8], Fault); 11] = [
        ("nothing", &[], Fault::Cut { missing: 1 }),
        ("codec 2", &[0x06, 0, 0], Fault::BundleFlags(0x06)),
        ("codec 3", &[0x07, 0, 0], Fault::BundleFlags(0x07)),
        ("bit 7", &[0x84, 0, 0], Fault::BundleFlags(0x84)),
        ("no message", &[0, 0], Fault::Count { count: 0, length: 0 }),
        (
            "a message in one byte",
            &[0x04, 0],
            Fault::Count { count: 1, length: 1 },
        ),
        (
            "more messages than bytes for them",
            &[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 0, 2, 0],
            Fault::Count {
                count: u32::MAX,
                length: 4,
            },
        ),
        (
            "a count of more than 32 bits",
            &[0, 0xff, 0xff, 0xff, 0xff, 0x1f],
            Fault::Varint,
        ),
        ("bytes behind the last message", &[0x04, 2, 0, 9], Fault::LeftOver(1)),
        ("no Snappy", &[0x05, 4, 0xff, 0xff], Fault::Compression),
        ("half of what it says", &bomb, Fault::Compression),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(decode(bytes, 1), Err(expected), "{name}");
    }
    assert!(matches!(decode(&long, 1), Err(Fault::TooLong { limit, .. }) if limit == MAX_BUNDLE as u64));
}

#[test]
fn what_cannot_be_a_bundle_is_not_written() {
    assert_eq!(encode_bundle(&[]), Err(EncodeError::NoMessages));
    assert_eq!(encode_sparse_bundle(&[]), Err(EncodeError::NoMessages));
    let mut keyed = message(1, b"");
    let key = [0; 256];
    keyed.key = Some(&key);
    assert_eq!(encode_bundle(&[keyed]), Err(EncodeError::KeyTooLong(256)));
    keyed.key = Some(&key[..255]);
    assert!(encode_bundle(&[keyed]).is_ok());
    let large = vec![1; MAX_BUNDLE];
    assert!(matches!(
        encode_bundle(&[message(1, &large)]),
        Err(EncodeError::TooLarge(_))
    ));
}

#[test]
fn long_bundles_are_compressed_where_that_helps() {
    let same = vec![7; COMPRESS_ABOVE + 1];
    let bundle = encode_bundle(&[message(1, &same)]).unwrap();
    assert!(
        bundle[0] & CODEC == SNAPPY && bundle.len() < 200,
        "{} bytes",
        bundle.len()
    );
    let mut state = 1_u32;
    let noise: Vec<_> = (0..4_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        })
        .collect();
    let bundle = encode_bundle(&[message(1, &noise)]).unwrap();
    assert_eq!(bundle[0] & CODEC, 0);
    assert_eq!(decode(&bundle, 1).unwrap()[0].content, noise);
}

#[test]
fn bundles_that_follow_each_other_are_numbered() {
    let dense = encode_bundle(&[message(0, b"a"), message(0, b"b")]).unwrap();
    let sparse = encode_sparse_bundle(&[message(20, b"c"), message(29, b"d")]).unwrap();
    let (dense, sparse) = (Bundle::decode(&dense).unwrap(), Bundle::decode(&sparse).unwrap());
    let mut numbering = Numbering::new(Some(5));
    assert_eq!(numbering.number(&dense), Ok(Span { first: 5, last: 6 }));
    assert_eq!(numbering.number(&sparse), Ok(Span { first: 20, last: 29 }));
    assert_eq!(numbering.number(&dense), Ok(Span { first: 30, last: 31 }));
    assert_eq!(numbering.next(), Some(32));
    let mut unknown = Numbering::new(None);
    assert_eq!(unknown.number(&dense), Err(Fault::NoBase));
    assert_eq!(unknown.number(&sparse), Ok(Span { first: 20, last: 29 }));
    let mut last = Numbering::new(Some(u64::MAX - 1));
    assert_eq!(
        last.number(&dense),
        Err(Fault::Numbers),
        "nothing follows the last number"
    );
}

fn owned() -> impl Strategy<Value = Owned> {
    let key = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    let content = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(0..3_u8, 500..2_000),
    ];
    // Few times, so that neighbours often have the same.
    (1..1_000_u64, 0..3_u64, key, content).prop_map(|(skip, time, key, content)| Owned {
        // How far behind the one before, mostly right behind it.
        sequence: if skip < 500 { 1 } else { skip },
        time_ms: 1_700_000_000_000 + time,
        key,
        content,
    })
}

proptest! {
    #[test]
    fn messages_survive_bundles(mut messages in prop::collection::vec(owned(), 1..60), first in any::<u32>()) {
        let mut sequence = u64::from(first);
        for message in &mut messages {
            sequence += message.sequence;
            message.sequence = sequence;
        }
        let borrowed: Vec<_> = messages.iter().map(Owned::borrowed).collect();
        let sparse = encode_sparse_bundle(&borrowed).unwrap();
        prop_assert_eq!(decode(&sparse, 0), Ok(messages.clone()));
        let dense = encode_bundle(&borrowed).unwrap();
        for (place, message) in messages.iter_mut().enumerate() {
            message.sequence = u64::from(first) + place as u64;
        }
        prop_assert_eq!(decode(&dense, u64::from(first)), Ok(messages));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), first in any::<u64>()) {
        let _ = decode(&bytes, first);
    }

    #[test]
    fn bundles_with_a_changed_byte_are_read_or_refused(messages in prop::collection::vec(owned(), 1..20), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let borrowed: Vec<_> = messages.iter().map(Owned::borrowed).collect();
        let mut bundle = encode_bundle(&borrowed).unwrap().to_vec();
        let place = place.index(bundle.len());
        bundle[place] = byte;
        let _ = decode(&bundle, u64::MAX - 5);
    }
}
