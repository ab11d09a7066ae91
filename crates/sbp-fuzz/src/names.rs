//! The file of names, and tokens as texts: whatever is read is written and read again equal, and no error repeats a secret.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use bytes::BytesMut;
use sbp_messages::{Encoder, HeartbeatRequest, Message, Token};
use sbp_server::access::{Entry, Grant, Moment, TokenDigest, read_entries, write_entry};

/// The first byte says what the others are: a file, or a text.
pub fn run(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        return file(bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        agree::<Grant>(text);
        agree::<Moment>(text);
        token(text);
    }
}

fn file(bytes: &[u8]) {
    let entries = match read_entries(bytes) {
        Ok(entries) => entries,
        Err(bad) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&bad.line), "line {} of {lines}", bad.line);
            assert!(!bad.to_string().contains(char::is_control), "{bad}");
            return;
        }
    };
    for entry in &entries {
        assert_eq!(entry.check(), Ok(()), "what a server reads may be written");
    }
    let lines: Vec<_> = entries.iter().map(write_entry).collect();
    assert!(!lines.iter().any(|line| line.contains('\n')), "an entry is a line");
    let again: Vec<Entry> = read_entries(lines.join("\n").as_bytes()).expect("what we write can be read");
    assert_eq!(again, entries);
}

fn agree<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let again = value.to_string().parse::<T>();
    assert_eq!(again.ok().as_ref(), Some(&value), "{value} of {text:?}");
}

/// A token travels as it is, and shows nowhere.
fn token(text: &str) {
    let token = Token::new(text);
    let request = HeartbeatRequest {
        token: token.clone(),
        ..HeartbeatRequest::default()
    };
    let mut out = BytesMut::new();
    request.encode(&mut Encoder::new(), &mut out);
    let again = HeartbeatRequest::decode(&out).expect("what we write can be read");
    assert_eq!(again.token, token);
    let kept = String::from(TokenDigest::of(&token));
    assert_eq!(TokenDigest::try_from(kept.clone()), Ok(TokenDigest::of(&token)));
    if text.len() >= 12 {
        let shown = format!("{token:?} {request:?} {kept} {}", TokenDigest::of(&token));
        assert!(!shown.contains(text), "a token shows");
        if let Err(bad) = TokenDigest::try_from(text.to_owned()) {
            assert!(!bad.to_string().contains(text), "a token in the wrong place shows");
        }
    }
}

/// Files with a line of each kind, files that are wrong, and texts.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let lines = [
        format!(
            r#"{{"name":"billing","allow":["read:orders/*"],"sha256":"{digest}","expires":"2027-02-21T12:00:00Z"}}"#
        ),
        r#"{"name":"spark","allow":["read:*","write:results/*"],"certificate":"spark.example.com"}"#.to_owned(),
        r#"{"name":"job","allow":["admin:*","server"],"subject":"job@example.com","quota":{"connections":4}}"#
            .to_owned(),
        r#"{"name":"billing","allow":["read"],"sha256":"sbp_0123456789abcdef"}"#.to_owned(),
        r#"{"name":"two","allow":[],"sha256":7,"certificate":"x"}"#.to_owned(),
        "# a comment\n\n".to_owned(),
    ];
    let files = lines
        .iter()
        .cloned()
        .chain([lines[..3].join("\n"), lines[1..5].join("\n\r\n")]);
    let texts = [
        "read:orders/*",
        "admin:*",
        "server",
        "write:\u{e9}",
        "2026-11-23T12:00:00.250Z",
        "0000-01-01T00:00:00Z",
        "sbp_0123456789abcdef0123456789abcdef",
    ];
    let files = files.map(|text| [&[0], text.as_bytes()].concat());
    files
        .chain(texts.iter().map(|text| [&[1], text.as_bytes()].concat()))
        .collect()
}
