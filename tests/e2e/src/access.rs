//! Files of names, and clients that are known by a token.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sbp_client::{Client, ClientError, TokenSource};
use sbp_messages::{ClientRole, ErrorCode, HeartbeatRequest, HeartbeatResponse, Message, Token};
use sbp_server::access::{AuthFile, Entry, Quota, TokenDigest, new_token};
use sbp_server::{AccessConfig, Server, ServerConfig};
use tempfile::TempDir;

use crate::clients::client_with;
use crate::peer::Peer;
use crate::servers::quick_config;
use crate::wait::{bounded, until};

/// A file of names that a test fills.
#[derive(Debug)]
pub struct Names {
    directory: TempDir,
}

impl Default for Names {
    fn default() -> Self {
        let names = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        AuthFile::change(&names.path()).unwrap().write().unwrap();
        names
    }
}

impl Names {
    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("names")
    }

    /// Adds a name with these grants, known by a token.
    pub fn add(&self, name: &str, allow: &[&str]) -> Token {
        self.add_with(name, allow, |_| ())
    }

    /// The same, changed.
    pub fn add_with(&self, name: &str, allow: &[&str], change: impl FnOnce(&mut Entry)) -> Token {
        let token = new_token().unwrap();
        let mut entry = Entry {
            name: name.to_owned(),
            allow: allow.iter().map(|grant| grant.parse().unwrap()).collect(),
            sha256: Some(TokenDigest::of(&token)),
            certificate: None,
            subject: None,
            created: None,
            expires: None,
            quota: Quota::default(),
        };
        change(&mut entry);
        let mut file = AuthFile::change(&self.path()).unwrap();
        file.add(&entry);
        file.write().unwrap();
        token
    }

    /// Takes a name's tokens away.
    pub fn revoke(&self, name: &str) {
        let mut file = AuthFile::change(&self.path()).unwrap();
        assert!(file.remove(|entry| entry.name == name) > 0);
        file.write().unwrap();
    }

    /// Starts a server that asks who its clients are.
    pub fn serve(&self) -> Server {
        self.serve_with(|_| ())
    }

    /// The same, changed.
    pub fn serve_with(&self, change: impl FnOnce(&mut ServerConfig)) -> Server {
        let mut config = quick_config(None, "127.0.0.1:0");
        config.access = Some(AccessConfig {
            file: self.path(),
            jwt: None,
        });
        change(&mut config);
        Server::start(config).unwrap()
    }
}

/// What the server says of a token: nothing if it lets its owner in.
pub fn refused_as_unknown(server: &Server, token: &Token) -> Option<String> {
    let status = hello(&mut Peer::connect(server), token, ClientRole::CLIENT).status;
    if status.is_success() {
        return None;
    }
    assert_eq!(status.code, ErrorCode::UNAUTHORIZED, "{status}");
    for part in token.secret().split('.').filter(|part| part.len() > 20) {
        assert!(!status.message.contains(part), "a part of a token is in {status}");
    }
    Some(status.message)
}

/// Waits until the server has looked at the keys of OAuth tokens as they are now.
pub fn keys_are_looked_at(server: &Server) {
    let before = server.stats().keys_looked_at;
    // One look may have been under way.
    until("two looks at the keys", || {
        (server.stats().keys_looked_at >= before + 2).then_some(())
    });
}

/// Two clients show a token that expires soon. One has a second one when the server asks for it, and goes on with its
/// connection; the other has none. What the other is told when the time is up.
pub async fn one_shows_another_token(server: &Server, first: &Token, second: Token) -> ClientError {
    let tokens = Arc::new(Mutex::new(vec![second, first.clone()]));
    let client = client_with(server.address(), |config| {
        config.token = Some(TokenSource::Fresh(Arc::new(move || {
            let token = tokens.lock().unwrap().pop().ok_or_else(|| "no more".to_owned());
            Box::pin(async move { token })
        })));
    });
    bounded(client.list_streams(None)).await.unwrap();
    let stubborn = client_as(server, first);
    bounded(stubborn.list_streams(None)).await.unwrap();
    let expired = tokio::task::block_in_place(|| {
        until("the end of a token", || {
            let handle = tokio::runtime::Handle::current();
            let served = handle.block_on(client.list_streams(None));
            served.expect("the fresh one counts");
            handle.block_on(stubborn.list_streams(None)).err()
        })
    });
    bounded(client.list_streams(None)).await.unwrap();
    assert_eq!(client.stats().connections, 1);
    expired
}

/// A client with this token.
pub fn client_as(server: &Server, token: &Token) -> Client {
    let token = token.clone();
    client_with(server.address(), |config| {
        config.token = Some(TokenSource::Fixed(token));
        config.timeout = Duration::from_secs(10);
    })
}

/// Says hello with a token, in a role, and returns the answer.
pub fn hello(peer: &mut Peer, token: &Token, role: ClientRole) -> HeartbeatResponse {
    let request = HeartbeatRequest {
        client_role: role,
        protocol_revision: 1,
        token: token.clone(),
        ..HeartbeatRequest::default()
    };
    let call = peer.send(&request, &[]);
    HeartbeatResponse::decode(&peer.answer(call).header).unwrap()
}
