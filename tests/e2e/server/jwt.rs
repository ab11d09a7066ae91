//! OAuth tokens: which are believed, what is said of others, and keys that change while clients run.

use std::sync::{Arc, Mutex};

use jsonwebtoken::{Algorithm, EncodingKey, encode};
use sbp_client::TokenSource;
use sbp_e2e::access::{
    Names, client_as, hello, keys_are_looked_at, one_shows_another_token, refused_as_unknown as refused,
};
use sbp_e2e::clients::client_with;
use sbp_e2e::issuer::{KeyFile, SigningKey, claims, now};
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::{bounded, until};
use sbp_messages::{ClientRole, ErrorCode, Token};
use sbp_server::{Server, ServerConfig};
use serde_json::{Value, json};

/// Names with a line for a subject.
pub(crate) fn names() -> Names {
    let names = Names::default();
    let _ = names.add_with("spark", &["read:*", "admin:*"], |entry| {
        entry.sha256 = None;
        entry.subject = Some("job-7".to_owned());
    });
    names
}

fn believing(keys: &KeyFile) -> impl FnOnce(&mut ServerConfig) + use<> {
    let jwt = keys.config();
    |config| config.access.as_mut().unwrap().jwt = Some(jwt)
}

#[test]
fn tokens_signed_by_each_kind_of_key_are_believed() {
    let kinds = [Algorithm::ES256, Algorithm::ES384, Algorithm::RS256, Algorithm::PS512];
    let keys: Vec<_> = kinds
        .iter()
        .map(|kind| SigningKey::new(&format!("{kind:?}"), *kind))
        .collect();
    let file = KeyFile::new(&keys.iter().collect::<Vec<_>>());
    let names = names();
    let own = names.add("own", &["read:*"]);
    let server = names.serve_with(believing(&file));
    for key in &keys {
        assert_eq!(refused(&server, &key.sign(&claims("job-7", 60))), None);
    }
    assert_eq!(
        refused(&server, &own),
        None,
        "tokens of the file of names count as ever"
    );
    let without = names.serve();
    let told = refused(&without, &keys[0].sign(&claims("job-7", 60))).unwrap();
    assert!(told.contains("does not know the token"), "{told}");
}

#[test]
fn clocks_may_differ_by_a_minute_and_one_key_needs_no_name() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let server = names().serve_with(believing(&file));
    let mut early = claims("job-7", 600);
    early["nbf"] = json!(now() + 30);
    assert_eq!(refused(&server, &key.sign(&early)), None);
    assert_eq!(refused(&server, &key.sign(&claims("job-7", -30))), None);
    let mut fraction = claims("job-7", 0);
    fraction["exp"] = json!(f64::from(u32::try_from(now()).unwrap()) + 60.5);
    fraction["aud"] = json!(sbp_e2e::issuer::AUDIENCE);
    assert_eq!(refused(&server, &key.sign(&fraction)), None);
    let mut nameless = key.header();
    nameless.kid = None;
    assert_eq!(refused(&server, &key.sign_under(&nameless, &claims("job-7", 60))), None);
}

#[test]
fn what_is_wrong_with_a_token_is_told_and_never_the_token() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let other = SigningKey::new("other", Algorithm::RS256);
    let file = KeyFile::new(&[&key, &other]);
    let server = names().serve_with(believing(&file));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims("job-7", 600);
        change(&mut claims);
        key.sign(&claims)
    };
    let header = |change: &dyn Fn(&mut jsonwebtoken::Header)| {
        let mut header = key.header();
        change(&mut header);
        header
    };
    let fine = claims("job-7", 600);
    let forged = SigningKey::new("k", Algorithm::ES256).sign(&fine);
    let mut symmetric = jsonwebtoken::Header::new(Algorithm::HS256);
    symmetric.kid = Some("k".to_owned());
    let public = key.public["x"].as_str().unwrap().as_bytes();
    let symmetric = Token::new(encode(&symmetric, &fine, &EncodingKey::from_secret(public)).unwrap());
    let signed = key.sign(&fine).secret().to_owned();
    let (unsigned, _) = signed.rsplit_once('.').unwrap();
    let body = unsigned.split_once('.').unwrap().1;
    // {"alg":"none","kid":"k"}
    let none = format!("eyJhbGciOiJub25lIiwia2lkIjoiayJ9.{body}.");
    let cases = [
        (key.sign(&claims("job-7", -61)), "expired at"),
        (
            with(&|claims| claims["nbf"] = json!(now() + 90)),
            "does not count before",
        ),
        (
            with(&|claims| claims["aud"] = json!("elsewhere")),
            "which is \"sbp.example\" (aud)",
        ),
        (
            with(&|claims| claims["iss"] = json!("https://evil.example/")),
            "believes \"https://login.example/\" (iss)",
        ),
        (
            with(&|claims| claims["iss"] = json!([sbp_e2e::issuer::ISSUER, "https://evil.example/"])),
            "(iss, sub, exp, nbf) cannot be read",
        ),
        (with(&|claims| claims["iss"] = Value::Null), "lacks iss"),
        (with(&|claims| claims["aud"] = Value::Null), "lacks aud"),
        (
            with(&|claims| claims["exp"] = Value::Null),
            "(iss, sub, exp, nbf) cannot be read",
        ),
        (with(&|claims| claims["exp"] = json!(-1)), "lacks exp"),
        (
            with(&|claims| claims["exp"] = json!("soon")),
            "(iss, sub, exp, nbf) cannot be read",
        ),
        (
            with(&|claims| claims["sub"] = json!("somebody")),
            "its subject may do nothing here",
        ),
        (forged, "its signature is wrong"),
        (Token::new(format!("{unsigned}.AAAA")), "its signature is wrong"),
        (
            key.sign_under(&header(&|header| header.kid = Some("gone".to_owned())), &fine),
            "does not know the key",
        ),
        (
            key.sign_under(&header(&|header| header.kid = Some("other".to_owned())), &fine),
            "its algorithm (alg)",
        ),
        (
            key.sign_under(&header(&|header| header.crit = Some(vec!["b64".to_owned()])), &fine),
            "extensions (crit)",
        ),
        (symmetric, "its algorithm (alg)"),
        (Token::new(none), "its first part cannot be read, or names an algorithm"),
        (Token::new("a.b.c"), "its first part cannot be read"),
        (Token::new("..".to_owned()), "its first part cannot be read"),
    ];
    for (number, (token, why)) in cases.iter().enumerate() {
        let told = refused(&server, token).unwrap_or_else(|| panic!("case {number} was let in"));
        assert!(told.contains(why), "case {number}: {told}");
    }
    // Without a name, a key is taken only where it is the only one of its kind.
    let twins = KeyFile::new(&[&key, &SigningKey::new("twin", Algorithm::ES256)]);
    let server = names().serve_with(believing(&twins));
    let told = refused(&server, &key.sign_under(&header(&|header| header.kid = None), &fine)).unwrap();
    assert!(told.contains("does not say which key"), "{told}");
}

/// An issuer whose new key has the name of the old one: tokens of both are believed.
#[test]
fn of_two_keys_with_one_name_each_is_tried() {
    let (old, new) = (
        SigningKey::new("k", Algorithm::ES256),
        SigningKey::new("k", Algorithm::ES256),
    );
    let server = names().serve_with(believing(&KeyFile::new(&[&old, &new])));
    for key in [&old, &new] {
        assert_eq!(refused(&server, &key.sign(&claims("job-7", 60))), None);
    }
    let forged = SigningKey::new("k", Algorithm::ES256).sign(&claims("job-7", 60));
    let told = refused(&server, &forged).unwrap();
    assert!(told.contains("its signature is wrong"), "{told}");
}

#[test]
fn a_server_does_not_start_without_keys_that_it_can_use() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let names = names();
    let start = || {
        let mut config = sbp_e2e::servers::quick_config(None, "127.0.0.1:0");
        config.access = Some(sbp_server::AccessConfig {
            file: names.path(),
            jwt: Some(file.config()),
        });
        Server::start(config).unwrap_err().to_string()
    };
    let mut encrypting = key.public.clone();
    encrypting["use"] = json!("enc");
    let secret = json!({"kty": "oct", "kid": "k", "k": "c2VjcmV0", "alg": "HS256"});
    let mut confused = key.public.clone();
    confused["alg"] = json!("HS256");
    for (text, why) in [
        ("{".to_owned(), "no JSON Web Key Set"),
        (json!({"keys": []}).to_string(), "none of its keys"),
        (
            json!({"keys": [encrypting, secret, confused]}).to_string(),
            "none of its keys",
        ),
        (
            json!({"keys": vec![&key.public; 101]}).to_string(),
            "more than 100 keys",
        ),
    ] {
        file.write(&text);
        let told = start();
        assert!(told.contains(why) && told.contains("jwks.json"), "{told}");
    }
    file.publish(&[&key]);
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(file.path(), writable).unwrap();
    let told = start();
    assert!(told.contains("chmod 600"), "{told}");
}

/// Keys are changed while clients run: the file is broken for a while, a second key is added, the first is taken away.
#[tokio::test(flavor = "multi_thread")]
async fn keys_change_while_clients_run() {
    let (first, second) = (
        SigningKey::new("1", Algorithm::ES256),
        SigningKey::new("2", Algorithm::ES384),
    );
    let file = KeyFile::new(&[&first]);
    let server = names().serve_with(believing(&file));
    let signing = Arc::new(Mutex::new(first.clone()));
    let running = client_with(server.address(), |config| {
        let signing = Arc::clone(&signing);
        config.token = Some(TokenSource::Fresh(Arc::new(move || {
            let token = signing.lock().unwrap().sign(&claims("job-7", 600));
            Box::pin(async move { Ok(token) })
        })));
    });
    let stubborn = client_as(&server, &first.sign(&claims("job-7", 600)));
    bounded(running.list_streams(None)).await.unwrap();
    bounded(stubborn.list_streams(None)).await.unwrap();

    file.write("{\"keys\": [");
    let later = second.sign(&claims("job-7", 600));
    tokio::task::block_in_place(|| keys_are_looked_at(&server));
    assert_eq!(
        refused(&server, &first.sign(&claims("job-7", 600))),
        None,
        "a broken file changes nothing"
    );
    assert!(refused(&server, &later).unwrap().contains("does not know the key"));

    file.publish(&[&first, &second]);
    tokio::task::block_in_place(|| until("a second key", || refused(&server, &later).is_none().then_some(())));
    *signing.lock().unwrap() = second.clone();
    bounded(running.list_streams(None)).await.unwrap();
    assert_eq!(running.stats().connections, 1, "a key that is added disturbs nobody");

    file.publish(&[&second]);
    let thrown_out = tokio::task::block_in_place(|| {
        until("the end of a key", || {
            let handle = tokio::runtime::Handle::current();
            handle
                .block_on(running.list_streams(None))
                .expect("a fresh token counts");
            handle.block_on(stubborn.list_streams(None)).err()
        })
    });
    assert_eq!(thrown_out.code(), ErrorCode::UNAUTHORIZED, "{thrown_out}");
    assert!(thrown_out.to_string().contains("does not know the key"), "{thrown_out}");
    tokio::task::spawn_blocking(move || server.shutdown().unwrap())
        .await
        .unwrap();
}

/// Checking a signature is dear: a token that was believed is not looked at again, and others only so often.
#[test]
fn a_known_peer_has_few_signatures_checked() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let server = names().serve_with(believing(&KeyFile::new(&[&key])));
    let mut peer = Peer::connect(&server);
    let same = key.sign(&claims("job-7", 600));
    for _ in 0..100 {
        let status = hello(&mut peer, &same, ClientRole::CLIENT).status;
        assert!(status.is_success(), "{status}");
    }
    let refused = (0..40).find_map(|number| {
        let status = hello(&mut peer, &key.sign(&claims("job-7", 600 + number)), ClientRole::CLIENT).status;
        (!status.is_success()).then_some(status)
    });
    let status = refused.expect("too many tokens");
    assert_eq!(status.code, ErrorCode::TOO_MANY_REQUESTS, "{status}");
}

/// An issuer that has lost its key takes it away, also without another.
#[test]
fn an_empty_set_of_keys_takes_the_old_ones_away() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let server = names().serve_with(believing(&file));
    let token = key.sign(&claims("job-7", 600));
    let mut connected = Peer::connect(&server);
    assert!(hello(&mut connected, &token, ClientRole::CLIENT).status.is_success());
    let mut short = key.public.clone();
    short["x"] = json!("AAAA");
    for text in [json!({"keys": []}), json!({"keys": [short]})] {
        file.publish(&[&key]);
        until("the key", || refused(&server, &token).is_none().then_some(()));
        file.write(&text.to_string());
        let told = until("no key", || refused(&server, &token));
        assert!(told.contains("does not know the key"), "{told}");
    }
    assert_eq!(connected.recv().opcode, sbp_frame::OpCode::GOAWAY);
}

/// A file of keys that cannot be read, as a pipe that nobody writes to, keeps nobody in who is taken out of the file of
/// names.
#[test]
fn keys_that_hang_do_not_keep_who_is_revoked() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let names = names();
    let own = names.add("own", &["read:*"]);
    let server = names.serve_with(believing(&file));
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &own, ClientRole::CLIENT).status.is_success());
    std::fs::remove_file(file.path()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, file.path(), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    keys_are_looked_at(&server);
    names.revoke("own");
    assert_eq!(peer.recv().opcode, sbp_frame::OpCode::GOAWAY);
    server.shutdown().unwrap();
}

/// A client is asked for another token before its own expires, and is thrown out when it has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_signed_token_is_replaced_before_it_expires() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let server = names().serve_with(believing(&file));
    // A minute of slack, and three seconds: the server asks at once.
    let (first, second) = (key.sign(&claims("job-7", -57)), key.sign(&claims("job-7", 600)));
    let expired = one_shows_another_token(&server, &first, second).await;
    assert!(expired.to_string().contains("OAuth token expired at"), "{expired}");
}

/// The slack for clocks is not what a client is given to find another token: it is asked before its own has expired, and
/// again until there is one.
#[tokio::test(flavor = "multi_thread")]
async fn another_token_is_asked_for_before_it_expires_and_again_after() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let server = names().serve_with(believing(&file));
    let token = key.sign(&claims("job-7", 11));
    let expires = now() + 11;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let client = client_with(server.address(), |config| {
        let (asked, token) = (Arc::clone(&asked), token.clone());
        config.token = Some(TokenSource::Fresh(Arc::new(move || {
            asked.lock().unwrap().push(now());
            let token = token.clone();
            Box::pin(async move { Ok(token) })
        })));
    });
    bounded(client.list_streams(None)).await.unwrap();
    let asked = tokio::task::block_in_place(|| {
        until("three questions", || {
            Some(asked.lock().unwrap().clone()).filter(|asked| asked.len() == 3)
        })
    });
    assert!(asked[1] < expires, "{asked:?}: it expires at {expires}");
    bounded(client.list_streams(None)).await.unwrap();
    assert_eq!(client.stats().connections, 1);
}

/// The bound on the bytes of a token is that of the client and of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_4096_bytes_at_most() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let file = KeyFile::new(&[&key]);
    let server = names().serve_with(believing(&file));
    let of_length = |length: usize| {
        let padded = |padding: usize| {
            let mut claims = claims("job-7", 600);
            claims["groups"] = json!("g".repeat(padding));
            key.sign(&claims)
        };
        let base = padded(0).secret().len();
        let padding = (length - base) * 3 / 4;
        (padding - 4..=padding + 4)
            .map(padded)
            .find(|token| (length - 1..=length).contains(&token.secret().len()))
            .unwrap()
    };
    bounded(client_as(&server, &of_length(4_096)).list_streams(None))
        .await
        .unwrap();
    let long = bounded(client_as(&server, &of_length(4_200)).list_streams(None)).await;
    let long = long.unwrap_err().to_string();
    assert!(long.contains("more than 4096"), "{long}");
}
