//! Who this client is: the token in its HEARTBEAT, and what happens when the server does not take it.

use std::sync::Arc;
use std::time::Instant;

use sbp_messages::{ErrorCode, Token};
use sbp_session::Session;
use sbp_transport::Application as _;

use super::Connection;
use crate::channel::command::Command;
use crate::failure::{Cause, Failure};
use crate::token::TokenSource;

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
                self.ask_for_token(session, now);
            }
            Identity::Unsaid | Identity::Said => {
                self.identity = Identity::Said;
                self.send_heartbeat(session, now);
            }
            Identity::Asked => {}
        }
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
                self.context.channel.spawn(async move {
                    let token = source.get().await;
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

    /// The server does not serve this client: everything that waits is told so at once. The next call makes a connection,
    /// with a token that may be another.
    pub(super) fn be_denied(&mut self, cause: Cause) {
        for command in std::mem::take(&mut self.held) {
            command.fail(Failure::new(cause.clone(), Some(&self.context.endpoint)));
        }
        self.denied = Some(cause);
        self.drain();
    }
}
