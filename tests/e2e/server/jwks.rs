//! Keys of OAuth tokens that are fetched from an address.

use std::path::Path;

use jsonwebtoken::Algorithm;
use sbp_e2e::access::{Names, hello, keys_are_looked_at, refused_as_unknown};
use sbp_e2e::certificates::Authority;
use sbp_e2e::issuer::{ISSUER, SigningKey, claims};
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::until;
use sbp_messages::{ClientRole, Token};
use sbp_server::{AccessConfig, JwtConfig, KeySource, Server};

use crate::jwt::names;
use crate::key_server::KeyServer;

fn serve(names: &Names, jwt: JwtConfig) -> Server {
    names.serve_with(|config| config.access.as_mut().unwrap().jwt = Some(jwt))
}

fn token(key: &SigningKey) -> Token {
    key.sign(&claims("job-7", 600))
}

fn is_let_in(server: &Server, token: &Token) -> bool {
    refused_as_unknown(server, token).is_none()
}

/// An authority, and an issuer's server with its certificate.
fn issuer(directory: &Path, keys: &[&SigningKey]) -> (Authority, KeyServer) {
    let authority = Authority::new(directory, "authority");
    let certificate = authority.issue("issuer", &["127.0.0.1"]);
    let server = KeyServer::new(keys, Some(&certificate));
    (authority, server)
}

#[test]
fn keys_come_over_tls_and_new_ones_when_a_token_names_them() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (
        SigningKey::new("1", Algorithm::ES256),
        SigningKey::new("2", Algorithm::ES384),
    );
    let (authority, issuer) = issuer(directory.path(), &[&first]);
    let server = serve(&names(), issuer.config(Some(authority.file())));
    assert_eq!(
        refused_as_unknown(&server, &token(&first)),
        None,
        "it has keys when it has started"
    );
    let mut connected = Peer::connect(&server);
    assert!(
        hello(&mut connected, &token(&first), ClientRole::CLIENT)
            .status
            .is_success()
    );

    issuer.publish(&[&first, &second]);
    until("the second key", || is_let_in(&server, &token(&second)).then_some(()));
    assert!(is_let_in(&server, &token(&first)));

    // A key that is taken away ends connections, also where no token asks for another.
    issuer.publish(&[&second]);
    assert_eq!(connected.recv().opcode, sbp_frame::OpCode::GOAWAY);
    assert!(!is_let_in(&server, &token(&first)));
    assert!(is_let_in(&server, &token(&second)));
}

/// Whoever shows tokens with names of keys that nobody has makes the server ask its issuer no more often than it may be asked.
#[test]
fn tokens_with_unknown_keys_do_not_flood_the_issuer() {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::new("k", Algorithm::ES256);
    let (authority, issuer) = issuer(directory.path(), &[&key]);
    let mut jwt = issuer.config(Some(authority.file()));
    if let KeySource::Url { refresh, .. } = &mut jwt.keys {
        *refresh = KeySource::REFRESH;
    }
    let server = serve(&names(), jwt);
    assert_eq!(issuer.asked(), 1);
    for number in 0..100 {
        let unknown = token(&SigningKey::new(&format!("unknown {number}"), Algorithm::ES256));
        assert!(!is_let_in(&server, &unknown));
    }
    assert_eq!(issuer.asked(), 1, "not again within half a minute");
    assert!(is_let_in(&server, &token(&key)));
}

#[test]
fn while_the_issuer_is_away_or_says_nonsense_the_last_keys_count() {
    let directory = tempfile::tempdir().unwrap();
    let (key, other) = (
        SigningKey::new("k", Algorithm::ES256),
        SigningKey::new("other", Algorithm::ES256),
    );
    let (authority, issuer) = issuer(directory.path(), &[&key]);
    let server = serve(&names(), issuer.config(Some(authority.file())));
    for (status, body) in [
        ("500 Internal Server Error", "{\"keys\":[]}"),
        ("302 Found", "{\"keys\":[]}"),
        ("200 OK", "<html>"),
        ("200 OK", &"x".repeat(2 << 20)),
    ] {
        issuer.say(status, body);
        let before = issuer.asked();
        until("two questions", || (issuer.asked() >= before + 2).then_some(()));
        assert!(is_let_in(&server, &token(&key)), "{status}");
    }
    issuer.publish(&[&key, &other]);
    until("the other key", || is_let_in(&server, &token(&other)).then_some(()));
    drop(issuer);
    assert!(is_let_in(&server, &token(&key)));
    server.shutdown().unwrap();
}

/// An issuer that is not there, or whom nobody vouches for, keeps a server from believing its tokens, not from starting.
#[test]
fn a_server_starts_without_its_issuer_and_believes_it_later() {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::new("k", Algorithm::ES256);
    let (authority, issuer) = issuer(directory.path(), &[&key]);
    let stranger = Authority::new(directory.path(), "stranger");
    let names = names();
    let own = names.add("own", &["read:*"]);
    let server = serve(&names, issuer.config(Some(stranger.file())));
    let told = refused_as_unknown(&server, &token(&key)).unwrap();
    assert!(told.contains("could not fetch the keys"), "{told}");
    assert!(is_let_in(&server, &own), "others are known without");
    drop(server);

    issuer.say("503 Service Unavailable", "");
    let server = serve(&names, issuer.config(Some(authority.file())));
    assert!(!is_let_in(&server, &token(&key)));
    issuer.publish(&[&key]);
    until("the issuer's return", || is_let_in(&server, &token(&key)).then_some(()));
    issuer.say("200 OK", "{\"keys\":[]}");
    keys_are_looked_at(&server);
    assert!(!is_let_in(&server, &token(&key)), "no keys are an answer");
}

#[test]
fn without_tls_keys_come_from_this_machine_alone() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = KeyServer::new(&[&key], None);
    let names = names();
    let server = serve(&names, issuer.config(None));
    assert!(is_let_in(&server, &token(&key)));
    for (url, why) in [
        ("http://login.example/keys", "use https://"),
        ("https://u:p@login.example/keys", "a password"),
    ] {
        let mut config = quick_config(None, "127.0.0.1:0");
        config.access = Some(AccessConfig {
            file: names.path(),
            jwt: Some(JwtConfig {
                keys: KeySource::named(url.into(), None),
                issuer: ISSUER.to_owned(),
                audience: String::new(),
            }),
        });
        let told = Server::start(config).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
}
