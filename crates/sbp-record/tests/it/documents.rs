//! The protocol's page says what the code does.

use sbp_record::{
    BATCH_MAGIC, BodyEncoding, Compression, MAX_BATCH_LENGTH, MAX_UNCOMPRESSED_LENGTH, STAMP_LENGTH, padding_after,
};

const PAGE: &str = include_str!("../../../../schemas/README.md");

fn expect(text: &str) {
    assert!(PAGE.contains(text), "schemas/README.md lacks {text:?}");
}

#[test]
fn what_a_batch_looks_like() {
    expect(&format!("| 0x{BATCH_MAGIC:02x}   |"));
    expect("      1          8             4             m                b                      to 16");
    assert_eq!((STAMP_LENGTH, padding_after(1), padding_after(16)), (1 + 8, 15, 0));
    assert_eq!(MAX_BATCH_LENGTH, (16 << 20) - (64 << 10));
    expect("| one record batch | 16 MiB - 64 KiB |");
    assert_eq!(MAX_UNCOMPRESSED_LENGTH, 64 << 20);
    expect("`uncompressed_length` is what comes out, 64 MiB at\nmost");
}

#[test]
fn which_encodings_there_are() {
    let encodings = [
        BodyEncoding::RECORD_LIST,
        BodyEncoding::RAW,
        BodyEncoding::RECORDS,
        BodyEncoding::ARROW,
    ];
    for encoding in encodings {
        expect(&format!("| {} {encoding} | ", encoding.0));
    }
    for (compression, name) in [
        (Compression::NONE, "none"),
        (Compression::LZ4, "LZ4"),
        (Compression::ZSTD, "Zstandard"),
    ] {
        expect(&format!("{} {name}", compression.0));
    }
}
