//! The bytes do not change by accident, and what is read back is what was written.

use bytes::Bytes;
use proptest::prelude::*;
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId, TimestampMs, WriterId};

use super::checkpoint::{Checkpoint, CompactedItem, MarkPlace, PositionsItem, RangeItem, SegmentItem, WaitingItem};
use super::clean::GroupMark;
use super::footer::{FooterBuilder, FooterRun, IndexEntry, Trailer};
use super::group::{GroupHeader, UnreadableGroup, judge_unreadable};
use super::record::RecordHead;
use super::segment::SegmentHeader;
use super::superblock::{Groups, Superblock};
use super::{Crc32c, Unreadable, crc32c};
use crate::{Durability, EntryHead, EntryKind, WriterBatch, WriterKey, WriterState};

fn head() -> RecordHead {
    RecordHead {
        head: EntryHead {
            key: RangeKey {
                stream: StreamId(0x0102_0304_0506_0708),
                range: RangeIndex(0x1112_1314),
            },
            epoch: Epoch(3),
            base_offset: Offset(1_000),
            count: 7,
            append_time: TimestampMs(1_700_000_000_000),
            max_timestamp: TimestampMs(1_600_000_000_000),
            writer: WriterId { high: 0xaa, low: 0xbb },
            writer_epoch: 2,
            base_sequence: 40,
            ..EntryHead::default()
        },
        batch_len: 48,
        batch_crc: 0xdead_beef,
    }
}

fn group() -> GroupHeader {
    GroupHeader {
        number: 9,
        salt: 0x5a5a,
        length: 64 + 144,
        previous: 0x0bad_cafe,
        records: 1,
        durability: Durability::None,
        checksum: 0,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_checksum_is_castagnolis() {
    // The check value of CRC-32C.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let mut pieces = Crc32c::new();
    pieces.update(b"1234");
    pieces.update(b"56789");
    assert_eq!(pieces.finish(), 0xe306_9283);
}

#[test]
fn a_record_head_has_these_bytes() {
    let bytes = head().encode(RecordHead::mask(1));
    let text = concat!(
        "30000000",
        "14131211",
        "0807060504030201",
        "0300000000000000",
        "e803000000000000",
        "0700000000000000",
        "0068e5cf8b010000",
        "00806e8774010000",
        "aa00000000000000",
        "bb00000000000000",
        "0200000000000000",
        "2800000000000000",
        "efbeadde",
    );
    assert_eq!(hex(&bytes[..92]), text);
    assert_eq!(RecordHead::parse(&bytes, RecordHead::mask(1)), Some(head()));
    assert_eq!(
        RecordHead::parse(&bytes, RecordHead::mask(2)),
        None,
        "another segment's head"
    );
}

#[test]
fn a_mark_says_how_many_are_before_it() {
    let record = |kind, marks, shared, batch_len| {
        let mut record = head();
        (record.head.kind, record.head.marks, record.head.shared) = (kind, marks, shared);
        (record.head.count, record.head.max_timestamp, record.batch_len) = (0, TimestampMs(0), batch_len);
        if kind != EntryKind::Fence {
            record.head.writer = WriterId::NONE;
        }
        record
    };
    let parts = EntryKind::Writers { part: 1, parts: 3 };
    let fence = record(EntryKind::Fence, Some(4), false, 0);
    let writers = record(parts, Some(0), true, 48);
    assert_eq!(hex(&fence.encode(0)[32..40]), "0000000000000000");
    assert_eq!(hex(&fence.encode(0)[48..56]), "0500000000000000");
    assert_eq!(hex(&writers.encode(0)[32..40]), "0000000000000080");
    assert_eq!(hex(&writers.encode(0)[48..56]), "0100000001000300");
    let batch = RecordHead {
        head: EntryHead {
            shared: true,
            ..head().head
        },
        ..head()
    };
    assert_eq!(hex(&batch.encode(0)[32..40]), "0700000000000080");
    // As releases wrote fences that did not count them.
    let bare = record(EntryKind::Fence, None, false, 0);
    assert_eq!(hex(&bare.encode(0)[48..56]), "0000000000000000");
    for sound in [fence, writers, batch, bare] {
        assert_eq!(RecordHead::parse(&sound.encode(7), 7), Some(sound));
    }
    let nobodys = RecordHead {
        head: EntryHead {
            writer: WriterId::NONE,
            ..fence.head
        },
        ..fence
    };
    let somebodys = RecordHead {
        head: EntryHead {
            writer: WriterId { high: 0, low: 1 },
            ..writers.head
        },
        ..writers
    };
    let behind = record(EntryKind::Writers { part: 3, parts: 3 }, Some(0), true, 48);
    let empty = record(parts, Some(0), true, 0);
    let large = record(parts, Some(0), true, (4 << 20) + 1);
    let with_bytes = record(EntryKind::Fence, Some(0), false, 1);
    for wrong in [nobodys, somebodys, behind, empty, large, with_bytes] {
        assert_eq!(RecordHead::parse(&wrong.encode(7), 7), None, "{wrong:?}");
    }
}

#[test]
fn a_group_header_has_these_bytes() {
    let mut header = group();
    let bytes = header.seal(Crc32c::new());
    let text = concat!(
        "53425047",
        "0100",
        "0100",
        "0900000000000000",
        "5a5a000000000000",
        "d0000000",
        "fecaad0b",
        "01000000",
        "0000000000000000000000000000000000000000",
    );
    assert_eq!(hex(&bytes[..56]), text);
    assert_eq!(header.checksum, crc32c(&bytes[..56]));
    assert_eq!(GroupHeader::parse(&bytes, 0x5a5a), Some(header));
    assert_eq!(GroupHeader::parse(&bytes, 0x5a5b), None, "another segment's group");
    assert_eq!(GroupHeader::parse(&bytes[..63], 0x5a5a), None);
}

#[test]
fn a_newer_version_is_told_whatever_else_it_holds() {
    let mut bytes = Superblock::default().encode();
    bytes[8] = 4;
    bytes.truncate(20);
    assert_eq!(
        Superblock::parse(&bytes),
        Err(Unreadable::Newer { found: 4, supported: 3 })
    );
    bytes[0] = b'X';
    assert!(matches!(Superblock::parse(&bytes), Err(Unreadable::Bad(_))));
}

#[test]
fn every_flipped_bit_of_a_small_file_is_noticed() {
    let superblock = Superblock {
        directory_id: 5,
        boot_id: 6,
        server_id: Some(ServerId(7)),
        restored: false,
        groups: Groups::Batches,
    };
    for (server_id, restored) in [(None, true), (None, false), (Some(ServerId(7)), true)] {
        let superblock = Superblock {
            server_id,
            restored,
            ..superblock
        };
        assert_eq!(Superblock::parse(&superblock.encode()), Ok(superblock));
    }
    for (groups, version) in [(Groups::Batches, 1), (Groups::BareFences, 2), (Groups::Marks, 3)] {
        let superblock = Superblock { groups, ..superblock };
        assert_eq!(Superblock::parse(&superblock.encode()), Ok(superblock));
        assert_eq!(superblock.encode()[8], version);
    }
    let mark = GroupMark {
        number: 1,
        segment: 2,
        position: 3,
        checksum: 4,
    };
    assert_eq!(GroupMark::parse_clean(&mark.encode_clean()), Ok(mark));
    for bit in 0..superblock.encode().len() * 8 {
        let mut bytes = superblock.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::parse(&bytes).is_err(), "bit {bit}");
    }
    for bit in 0..mark.encode_clean().len() * 8 {
        let mut bytes = mark.encode_clean();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(GroupMark::parse_clean(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn a_segment_header_reads_as_written() {
    for durability in [Durability::Fsync, Durability::None] {
        let header = SegmentHeader {
            number: 1,
            salt: 2,
            capacity: 3,
            created: 4,
            boot_id: 5,
            durability,
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), SegmentHeader::LEN);
        assert_eq!(SegmentHeader::parse(&bytes), Ok(header));
    }
}

#[test]
fn a_footer_reads_as_written() {
    let key = |stream| RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(1),
    };
    let entry = |base| IndexEntry {
        base: Offset(base),
        end: Offset(base + 2),
        max_timestamp: TimestampMs(5),
        position: 4_160,
        length: 100,
    };
    let mut footer = FooterBuilder::new(8_192);
    footer.push(key(1), Epoch(2), &[entry(0), entry(2)]);
    footer.push(key(2), Epoch(2), &[entry(10)]);
    footer.push(key(3), Epoch(2), &[]);
    let last = GroupMark {
        number: 3,
        segment: 1,
        position: 4_096,
        checksum: 9,
    };
    let (bytes, runs) = footer.finish(77, 2, last);
    let first = FooterRun {
        key: key(1),
        epoch: Epoch(2),
        first: Offset(0),
        end: Offset(4),
        bytes: 200,
        max_timestamp: TimestampMs(5),
        ..runs[0]
    };
    assert_eq!((runs[0], runs.len()), (first, 2), "a range without entries has no run");
    let at = bytes.len() - Trailer::LEN;
    let trailer = Trailer::parse(&bytes[at..]).expect("a trailer");
    assert_eq!((trailer.salt, trailer.first_group, trailer.last), (77, 2, last));
    let directory = usize::try_from(trailer.directory - 8_192).expect("inside");
    assert_eq!(directory + trailer.directory_len(), at);
    assert_eq!(trailer.parse_runs(&bytes[directory..at]), Some(runs.clone()));
    assert_eq!(
        (runs[0].position, runs[0].count, runs[1].position, runs[1].count),
        (8_192, 2, 8_256, 1)
    );
    assert_eq!(
        IndexEntry::parse_all(&bytes[..64], runs[0].crc),
        Some(vec![entry(0), entry(2)])
    );
    assert_eq!(IndexEntry::parse_all(&bytes[..64], runs[1].crc), None);
}

/// Envelope, sequence, mark, flags, and the two sections that every checkpoint has.
const EMPTY_CHECKPOINT: &str = concat!(
    "534250434845434b",
    "01000000",
    "0900000000000000",
    "0500000000000000",
    "0400000000000000",
    "0010000000000000",
    "07000000",
    "00000000",
    "01000000010000000000000000000000",
    "02000000010000000000000000000000",
);

fn checkpoint() -> Checkpoint {
    Checkpoint {
        sequence: 9,
        covered: GroupMark {
            number: 5,
            segment: 4,
            position: 4_096,
            checksum: 7,
        },
        ..Checkpoint::default()
    }
}

#[test]
fn a_checkpoint_without_writers_and_remains_has_the_bytes_it_always_had() {
    let bytes = checkpoint().encode();
    assert_eq!(hex(&bytes[..bytes.len() - 4]), EMPTY_CHECKPOINT);
    assert_eq!(Checkpoint::parse(&bytes), Ok(checkpoint()));
}

#[test]
fn writers_and_remains_have_these_bytes() {
    let mut state = WriterState::default();
    state.record(&head().head);
    let with = Checkpoint {
        compacted: vec![CompactedItem {
            segment: SegmentItem {
                number: 3,
                salt: 0x5a,
                first_group: 1,
                last_group: 2,
                damaged: true,
            },
            order: 2,
        }],
        newest_append: TimestampMs(11),
        writers: vec![(WriterKey::of(&head().head).expect("a writer"), state)],
        ..checkpoint()
    };
    let text = concat!(
        // Writers: the newest append time; stream, name, epoch, next sequence, last append and offset, range, window.
        "03000000010000006000000000000000",
        "0b00000000000000",
        "0807060504030201",
        "aa00000000000000",
        "bb00000000000000",
        "0200000000000000",
        "2f00000000000000",
        "0068e5cf8b010000",
        "ef03000000000000",
        "14131211",
        "01000000",
        "2800000000000000",
        "0700000000000000",
        "e803000000000000",
        // Compacted files.
        "04000000010000003000000000000000",
        "0300000000000000",
        "5a00000000000000",
        "0100000000000000",
        "0200000000000000",
        "0100000000000000",
        "0200000000000000",
    );
    let bytes = with.encode();
    assert_eq!(hex(&bytes[..bytes.len() - 4]), format!("{EMPTY_CHECKPOINT}{text}"));
    assert_eq!(Checkpoint::parse(&bytes), Ok(with));
}

#[test]
fn only_what_an_interrupted_write_leaves_is_torn() {
    let mut header = group();
    header.length = 64 + 2_000;
    let mut sum = Crc32c::new();
    sum.update(&[7; 2_000]);
    let mut image = header.seal(sum).to_vec();
    image.resize(64 + 2_000, 7);
    image.resize(8_192, 0);
    assert!(header.is_whole(&image));
    let judge = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = image.clone();
        change(&mut image);
        judge_unreadable(&image, 0x5a5a)
    };
    for sector in 0..5 {
        let missing = judge(&|image| image[sector * 512..][..512].fill(0));
        assert_eq!(missing, UnreadableGroup::Torn, "sector {sector}");
    }
    assert_eq!(
        judge(&|image| image[1_000] = 8),
        UnreadableGroup::Corrupt,
        "no sector is missing"
    );
    assert_eq!(
        judge(&|image| image[30] ^= 1),
        UnreadableGroup::Corrupt,
        "a header is written whole"
    );
    let beyond = judge(&|image| {
        image[512..1_024].fill(0);
        image[4_096] = 1;
    });
    assert_eq!(
        beyond,
        UnreadableGroup::Corrupt,
        "a write does not reach beyond its end"
    );
}

prop_compose! {
    fn any_range()(
        stream: i64, range: i32, first: i64, released: i64, end: i64, epoch: i64, proven: bool,
        damage in prop::collection::vec((any::<i64>(), any::<i64>()), 0..3),
    ) -> RangeItem {
        RangeItem {
            key: RangeKey { stream: StreamId(stream), range: RangeIndex(range) },
            first: Offset(first),
            released: Offset(released),
            end: Offset(end),
            epoch: Epoch(epoch),
            proven,
            damage: damage.into_iter().map(|(from, to)| (Offset(from), Offset(to))).collect(),
        }
    }
}

prop_compose! {
    fn any_position()(offset: i64, marks: u32) -> Position {
        Position { offset: Offset(offset), marks }
    }
}

prop_compose! {
    fn any_waiting()(bytes in prop::collection::vec(any::<u8>(), 1..40), what in 0..3, shared: bool) -> WaitingItem {
        let mut head = EntryHead { shared, ..head().head };
        if what > 0 {
            (head.count, head.max_timestamp, head.marks) = (0, TimestampMs(0), Some(3));
            head.kind = EntryKind::Fence;
        }
        if what > 1 {
            (head.kind, head.writer) = (EntryKind::Writers { part: 0, parts: 2 }, WriterId::NONE);
            return WaitingItem { head, bytes: bytes.into() };
        }
        WaitingItem { head, bytes: Bytes::new() }
    }
}

prop_compose! {
    fn any_positions()(
        stream: i64, range: i32, end_marks: u32, ended in prop::option::of(any_position()), shared: bool,
        marks in prop::collection::vec((any_position(), any::<(u64, u32, u32)>()), 0..3),
    ) -> PositionsItem {
        PositionsItem {
            key: RangeKey { stream: StreamId(stream), range: RangeIndex(range) },
            end_marks,
            ended,
            shared,
            marks: marks.into_iter().map(|(position, (segment, place, length))| {
                MarkPlace { position, segment, place, length }
            }).collect(),
        }
    }
}

prop_compose! {
    fn any_writer()(
        stream: i64, range: i32, writer: (u64, u64), words: (i64, i64, i64, i64),
        window in prop::collection::vec(any::<(i64, i64, i64)>(), 0..3),
    ) -> (WriterKey, WriterState) {
        let stream = StreamId(stream);
        let state = WriterState {
            epoch: words.0,
            next_sequence: words.1,
            window: window.into_iter().map(|(base_sequence, count, base_offset)| {
                WriterBatch { base_sequence, count, base_offset: Offset(base_offset) }
            }).collect(),
            last_append: TimestampMs(words.2),
            last_range: RangeKey { stream, range: RangeIndex(range) },
            last_offset: Offset(words.3),
        };
        (WriterKey { stream, writer: WriterId { high: writer.0, low: writer.1 } }, state)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_reads_as_written(
        numbers: (u64, u64, u64, u64, u32),
        unlisted_damage: bool,
        segments in prop::collection::vec(any::<(u64, u64, u64, u64, bool)>(), 0..4),
        compacted in prop::collection::vec(any::<(u64, u64, u64, u64, bool)>(), 0..4),
        ranges in prop::collection::vec(any_range(), 0..4),
        writers in prop::collection::vec(any_writer(), 0..4),
        positions in prop::collection::vec(any_positions(), 0..4),
        waiting in prop::collection::vec(any_waiting(), 0..4),
        folded in prop::collection::vec((any::<i64>(), any::<i32>(), any_position()), 0..4),
        newest: i64,
        cut in 0..64usize,
    ) {
        let (sequence, number, segment, position, checksum) = numbers;
        let item = |(number, salt, first_group, last_group, damaged)| {
            SegmentItem { number, salt, first_group, last_group, damaged }
        };
        let segments = segments.into_iter().map(item).collect();
        let compacted: Vec<_> =
            compacted.into_iter().map(|words| CompactedItem { segment: item(words), order: words.0 }).collect();
        let covered = GroupMark { number, segment, position, checksum };
        let newest_append = TimestampMs(if writers.is_empty() { 0 } else { newest });
        let checkpoint = Checkpoint {
            sequence, covered, unlisted_damage, segments, compacted, ranges, positions, waiting,
            folded: folded.into_iter().map(|(stream, range, at)| (StreamId(stream), RangeIndex(range), at)).collect(),
            newest_append, writers,
        };
        let bytes = checkpoint.encode();
        prop_assert_eq!(Checkpoint::parse(&bytes[..bytes.len() - 1 - cut % bytes.len()]).ok(), None);
        prop_assert_eq!(Checkpoint::parse(&bytes), Ok(checkpoint));
    }

    #[test]
    fn parsers_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), salt: u64) {
        let _ = Checkpoint::parse(&bytes);
        let _ = Superblock::parse(&bytes);
        let _ = GroupMark::parse_clean(&bytes);
        let _ = SegmentHeader::parse(&bytes);
        let _ = Trailer::parse(&bytes);
        let _ = RecordHead::parse(&bytes, 0);
        let _ = GroupHeader::parse(&bytes, salt);
        prop_assert_eq!(judge_unreadable(&[], salt), UnreadableGroup::Torn);
        let _ = judge_unreadable(&bytes, salt);
    }

    /// With a right checksum around anything, the inside is still not trusted.
    #[test]
    fn a_checkpoint_with_a_right_checksum_may_hold_anything(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = super::begin_envelope(b"SBPCHECK");
        bytes.extend_from_slice(&body);
        let _ = Checkpoint::parse(&super::seal_envelope(bytes));
    }
}
