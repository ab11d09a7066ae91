//! The file of names, and tokens as texts: whatever is read is written and read again equal, and no error repeats a secret.
//! OAuth tokens, signed and not: who is believed says what he has to, and nobody is for whom nobody signed.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use sbp_messages::{Encoder, HeartbeatRequest, Message, Token};
use sbp_server::access::{Entry, Grant, Moment, TokenDigest, judge_signed, read_entries, write_entry};

/// The first byte says what the others are: a file, a text, what a signed token says, a token with whatever signature, or
/// keys.
pub fn run(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    if kind % 5 == 0 {
        return file(bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match kind % 5 {
        1 => {
            agree::<Grant>(text);
            agree::<Moment>(text);
            token(text);
        }
        2 => signed(text),
        3 => {
            let believed = judge(&public_key(), text);
            assert!(believed.is_err(), "nobody signed {text:?}");
        }
        _ => {
            let _ = judge(text, &sign(r#"{"alg":"EdDSA","kid":"k"}"#, CLAIMS));
        }
    }
}

const ISSUER: &str = "https://login.example/";
const AUDIENCE: &str = "sbp.example";
/// Seconds since 1970.
const NOW: i64 = 1_700_000_000;
const CLAIMS: &str = r#"{"iss":"https://login.example/","aud":"sbp.example","sub":"job","exp":1700000100}"#;

/// The secret half of the key that signs here, of no use to anybody: a PKCS #8 with 32 bytes in a row.
fn secret_key() -> EncodingKey {
    const HEAD: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];
    let seed: [u8; 32] = std::array::from_fn(|place| place.to_le_bytes()[0]);
    EncodingKey::from_ed_der(&[&HEAD[..], &seed].concat())
}

/// The other half, as a set of keys.
fn public_key() -> String {
    let mut key = Jwk::from_encoding_key(&secret_key(), Algorithm::EdDSA).expect("a key");
    key.common.key_id = Some("k".to_owned());
    serde_json::json!({ "keys": [key] }).to_string()
}

/// A token whose parts are any texts, and whose signature is right.
fn sign(header: &str, claims: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature =
        jsonwebtoken::crypto::sign(message.as_bytes(), &secret_key(), Algorithm::EdDSA).expect("a signature");
    format!("{message}.{signature}")
}

/// Whom a server takes the owner of a token for. What it says to others is short, can be shown, and is not the token.
fn judge(keys: &str, token: &str) -> Result<String, String> {
    let now = Moment::from_secs(NOW);
    let judged = judge_signed(keys, ISSUER, AUDIENCE, &Token::new(token), now);
    if let Err(why) = &judged {
        assert!(!why.contains(char::is_control), "{why:?}");
        // Our own words have spaces between them, and none of them is so long.
        let is_secret = |part: &&str| part.len() >= 12 && !part.contains(char::is_whitespace);
        let parts = token.split('.').filter(is_secret);
        assert!(
            !parts.into_iter().any(|part| why.contains(part)),
            "a token shows: {why}"
        );
    }
    judged
}

/// A token that is signed and says this: its header, a line break, and its claims.
fn signed(text: &str) {
    let (header, claims) = text.split_once('\n').unwrap_or((r#"{"alg":"EdDSA"}"#, text));
    let Ok(subject) = judge(&public_key(), &sign(header, claims)) else {
        return;
    };
    let said: serde_json::Value = serde_json::from_str(claims).expect("what is believed is JSON");
    assert_eq!(said["sub"], subject, "{claims}");
    assert_eq!(said["iss"], ISSUER, "{claims}");
    let for_us = |audience: &serde_json::Value| audience == AUDIENCE;
    let is_for_us = for_us(&said["aud"]) || said["aud"].as_array().is_some_and(|all| all.iter().any(for_us));
    assert!(is_for_us, "{claims}");
    let seconds = |claim: &str| said[claim].as_f64();
    let now = f64::from(i32::try_from(NOW).expect("a number of seconds"));
    assert!(seconds("exp").is_some_and(|expires| expires + 60.5 > now), "{claims}");
    assert!(seconds("nbf").is_none_or(|begin| begin - 60.5 < now), "{claims}");
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
        if let (Err(bad), Err(other)) = (
            TokenDigest::try_from(text.to_owned()),
            TokenDigest::try_from(String::new()),
        ) {
            assert_eq!(bad.to_string(), other.to_string(), "a token in the wrong place shows");
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
        // Found by the fuzzer, when this target looked for a token in what is said of it: those are our own words.
        "64 hexadecimal digits",
    ];
    let claims = [
        CLAIMS.to_owned(),
        format!("{}\n{CLAIMS}", r#"{"typ":"JWT","alg":"EdDSA","kid":"k"}"#),
        format!("{}\n{CLAIMS}", r#"{"alg":"EdDSA","kid":"other","crit":["b64"]}"#),
        format!("{}\n{CLAIMS}", r#"{"alg":"HS256"}"#),
        CLAIMS.replace("\"sbp.example\"", "[\"other\",\"sbp.example\"]"),
        CLAIMS.replace("\"https://login.example/\"", "[\"https://login.example/\"]"),
        CLAIMS.replace("1700000100", "1699999941.5,\"nbf\":1700000059"),
        CLAIMS.replace("1700000100", "1e300"),
        "{}".to_owned(),
    ];
    let keys = [
        public_key(),
        "{\"keys\":[]}".to_owned(),
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}".to_owned(),
    ];
    let of_kind = |kind: u8| move |text: String| [&[kind], text.as_bytes()].concat();
    let unsigned = sign("{\"alg\":\"none\"}", CLAIMS);
    let unsigned = unsigned.rsplit_once('.').map(|(unsigned, _)| format!("{unsigned}."));
    files
        .map(of_kind(0))
        .chain(texts.iter().map(|text| of_kind(1)((*text).to_owned())))
        .chain(claims.into_iter().map(of_kind(2)))
        .chain(unsigned.into_iter().map(of_kind(3)))
        .chain(keys.into_iter().map(of_kind(4)))
        .collect()
}
