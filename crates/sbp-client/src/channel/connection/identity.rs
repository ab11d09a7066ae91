//! Who this client is: the token in its HEARTBEAT, and what happens when the server does not take it.

use std::sync::Arc;
use std::time::Instant;

use sbp_messages::{ErrorCode, Token};
use sbp_session::Session;
use sbp_transport::{Application as _, is_loopback};
use tokio::time::timeout;

use super::Connection;
use crate::channel::command::Command;
use crate::failure::{Cause, Failure};
use crate::token::TokenSource;

/// The share of the time to connect that the token may take. A server waits as long for it, by default, and would close the
/// connection before anybody is told why.
const PATIENCE: f64 = 0.9;

/// Whether the server has been told who this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The first HEARTBEAT is not due yet.
    Unsaid,
    /// The token for the first HEARTBEAT is being got; nothing is sent until it is here.
    Asked,
    /// The first HEARTBEAT is sent.
    Said,
}

/// Whether a refusal of HEARTBEAT means that this client is not served, whichever connection it uses.
pub(crate) fn is_denial(cause: &Cause) -> bool {
    let denials = [ErrorCode::UNAUTHORIZED, ErrorCode::FORBIDDEN];
    matches!(cause, Cause::Refused { code, .. } if denials.contains(code))
}

impl Connection {
    /// Whether the HEARTBEAT that says who this is has not been sent: a server serves nothing before it.
    pub(super) fn waits_for_token(&self) -> bool {
        self.identity != Identity::Said && self.context.channel.config.token.is_some()
    }

    /// A HEARTBEAT is due. The first one says who this is.
    pub(super) fn say_hello(&mut self, session: &mut Session, now: Instant) {
        match self.identity {
            Identity::Unsaid if self.context.channel.config.token.is_some() => {
                self.identity = Identity::Asked;
                if self.may_tell_token() {
                    self.ask_for_token(session, now);
                } else {
                    let endpoint = &self.context.endpoint;
                    let why = format!(
                        "it is not sent in clear to {endpoint}, where others on the network could read it: talk TLS \
                         (sbps://{endpoint}), or, where the network is trusted, say so (token_in_clear=True, \
                         --token-in-clear, option tokenInClear)"
                    );
                    self.handle_token(session, now, Err(why));
                }
            }
            Identity::Unsaid | Identity::Said => {
                self.identity = Identity::Said;
                self.send_heartbeat(session, now);
            }
            Identity::Asked => {}
        }
    }

    /// Whether nobody on the way to the server can read the token, or may.
    fn may_tell_token(&self) -> bool {
        let config = &self.context.channel.config;
        config.tls.is_some() || config.token_in_clear || is_loopback(&self.context.endpoint)
    }

    /// Gets a token, for a HEARTBEAT that says it. One that has to be asked for comes as a command.
    pub(super) fn ask_for_token(&mut self, session: &mut Session, now: Instant) {
        let channel = &self.context.channel;
        match &channel.config.token {
            None => {}
            Some(TokenSource::Fixed(token)) => {
                let token = TokenSource::check(token.clone());
                self.handle_token(session, now, token);
            }
            Some(source) => {
                let (source, channel, generation) = (source.clone(), Arc::clone(channel), self.generation);
                let patience = channel.config.connect_timeout.mul_f64(PATIENCE);
                self.context.channel.spawn(async move {
                    let token = timeout(patience, source.get()).await;
                    let token = token.unwrap_or_else(|_| Err(format!("what gives it gave none within {patience:?}")));
                    channel.post_to(generation, Command::Token(token));
                });
            }
        }
    }

    /// The token is here, or there is none: the HEARTBEAT goes out, then what waited for it.
    pub(super) fn handle_token(&mut self, session: &mut Session, now: Instant, token: Result<Token, String>) {
        let was_waited_for = self.identity == Identity::Asked;
        self.identity = Identity::Said;
        match token {
            Ok(token) => {
                self.hello.set_token(token);
                self.send_heartbeat(session, now);
                self.hello.set_token(Token::default());
            }
            Err(why) if was_waited_for => {
                let cause = Cause::Refused {
                    code: ErrorCode::UNAUTHORIZED,
                    message: format!("this client has no token to say who it is: {why}"),
                    throttle: std::time::Duration::ZERO,
                    leader: None,
                };
                return self.be_denied(cause);
            }
            Err(why) => {
                let endpoint = &self.context.endpoint;
                tracing::warn!(%endpoint, %why, "the server asked for a fresh token, and there is none");
            }
        }
        if was_waited_for {
            for command in std::mem::take(&mut self.held) {
                self.handle_command(session, now, command);
            }
        }
    }

    /// The server does not serve this client: everything that waits is told so at once, and so is what comes in the next
    /// moments. A later call makes a connection, with a token that may be another.
    pub(super) fn be_denied(&mut self, cause: Cause) {
        self.context.channel.be_denied(&cause);
        for command in std::mem::take(&mut self.held) {
            command.fail(Failure::new(cause.clone(), Some(&self.context.endpoint)));
        }
        self.denied = Some(cause);
        self.drain();
    }
}
