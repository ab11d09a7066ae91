//! A connection's peer becomes known, stays so, and is thrown out.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::OpCode;
use sbp_messages::{ClientRole, ErrorCode, GoAway, HeartbeatRequest, Status};
use sbp_session::{Outgoing, Session};
use sbp_transport::NoPlace;

use super::handler::Connection;
use super::identification::{ASK_AGAIN, ASK_BEFORE, Expiry, unauthorized};
use crate::access::{Asker, Deed, Denied, Gate, Presence, TokenDigest};
use crate::refusal::Refusal;

/// What a peer is told for whom there is no place.
fn no_room(NoPlace { limit }: NoPlace) -> Refusal {
    let message = format!("this server has {limit} connections, which is as many as it may have; connect again later");
    Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message)
}

impl Connection {
    /// Whether the peer is known, or is not asked who it is.
    pub(super) fn is_known(&self) -> bool {
        self.node.access.is_none() || !self.gate.is_open()
    }

    /// Finds out from a HEARTBEAT who the peer is, and lets it in. A HEARTBEAT without a token changes nothing for a peer
    /// that is known.
    pub(super) fn identify(
        &mut self,
        session: &mut Session,
        now: Instant,
        request: &HeartbeatRequest,
    ) -> Result<(), Refusal> {
        let Some(access) = &self.node.access else {
            return Ok(());
        };
        // A HEARTBEAT that says nothing new about a peer whose last one was not believed.
        if let (true, true, Some(denied)) = (
            request.token.is_empty(),
            self.gate.is_open(),
            &self.identification.denied,
        ) {
            return Err(denied.clone());
        }
        let moment = self.node.moment();
        let shown = (!request.token.is_empty()).then(|| TokenDigest::of(&request.token));
        let found = match self.gate.principal() {
            Some(principal) if shown.is_none() => Ok(Arc::clone(principal)),
            // The signature of a token that was believed is not checked again.
            Some(principal) if shown.as_ref() == self.identification.believed.as_deref() => {
                access.again(principal, moment).map_err(|denied| unauthorized(&denied))
            }
            _ => self.identification.count_token(now).and_then(|()| {
                let certificate = self.origin().peer_name.as_deref();
                let found = access.authenticate(&request.token, certificate, moment);
                found.map_err(|denied| unauthorized(&denied))
            }),
        };
        let who = found.as_ref().ok().map(|principal| Arc::clone(&principal.name));
        let gate = found
            .map(Gate::of)
            .and_then(|gate| {
                if matches!(
                    request.client_role,
                    ClientRole::PLACEMENT_DRIVER | ClientRole::RANGE_SERVER
                ) {
                    gate.check_server()?;
                }
                let presence = self.enter(session, &gate, false)?;
                Ok((gate, presence))
            })
            .and_then(|known| match self.place.become_known() {
                Ok(()) => Ok(known),
                Err(no_place) => {
                    self.identification.give_up();
                    Err(no_room(no_place))
                }
            });
        match gate {
            Ok((gate, presence)) => {
                self.let_in(session, now, gate, presence);
                self.identification.denied = None;
                self.identification.refused = 0;
                if shown.is_some() {
                    self.identification.believed = shown.map(Box::new);
                }
                session.set_authenticated();
                Ok(())
            }
            Err(refusal) => {
                self.identification.refused = self.identification.refused.saturating_add(1);
                let status = refusal.clone().into();
                self.node.refusals.note(OpCode::HEARTBEAT, &status, self.handle.id, now);
                self.audit(who, OpCode::HEARTBEAT, refusal.code);
                self.identification.denied = Some(refusal.clone());
                Err(refusal)
            }
        }
    }

    fn audit(&self, who: Option<Arc<str>>, operation: OpCode, code: ErrorCode) {
        if let Some(audit) = &self.node.audit
            && [ErrorCode::UNAUTHORIZED, ErrorCode::FORBIDDEN].contains(&code)
        {
            let from = self.origin().address;
            audit.note(&Asker { who, from }, &Deed::new(operation, code));
        }
    }

    /// Why a request of a peer that is not known is not served: what was wrong with its HEARTBEAT, if it sent one.
    pub(super) fn not_authenticated(&self) -> Status {
        let denied = self.identification.denied.clone();
        denied.unwrap_or_else(|| unauthorized(&Denied::NoToken)).into()
    }

    /// Counts this connection as one of the peer's name, if that has a quota, and its requests that are not answered with
    /// it. `is_there`: it is not refused.
    fn enter(&mut self, session: &Session, gate: &Gate, is_there: bool) -> Result<Option<Presence>, Refusal> {
        let usage = gate.principal().and_then(|principal| principal.usage.as_ref());
        let present = self
            .replier
            .presence
            .take_if(|presence| usage.is_some_and(|usage| presence.is_of(usage)));
        match (present, usage) {
            (Some(present), _) => Ok(Some(present)),
            (None, Some(usage)) => {
                let calls = session.peer_calls() + session.waiting();
                let calls = u32::try_from(calls).unwrap_or(u32::MAX);
                Presence::enter(usage, is_there, calls).map(Some)
            }
            (None, None) => Ok(None),
        }
    }

    /// From now on the peer may do what `gate` lets it, and what it asked for before is judged by that too.
    fn let_in(&mut self, session: &mut Session, now: Instant, gate: Gate, presence: Option<Presence>) {
        self.replier.presence = presence;
        if gate == self.gate {
            return;
        }
        let moment = self.node.moment();
        let expires = gate
            .principal()
            .and_then(|principal| Some((principal.renew_by()?, principal.expires?)));
        let expiry = expires.map(|(renew_by, end)| Expiry {
            ask: now + renew_by.from_now(moment).saturating_sub(ASK_BEFORE),
            end: now + end.from_now(moment),
        });
        self.identification.expiry = expiry.map(Box::new);
        self.gate = gate;
        let (work, mut turn) = self.turn(session, now);
        let gate = turn.gate;
        work.appends.change_rights(&mut turn, Ok(gate));
        work.fetches.judge_again(&mut turn);
        // What waits goes on with the new rights: whoever may asks again.
        work.fetches.end_all(&mut turn);
    }

    /// Somebody may not be known any more, or may do other things.
    pub(super) fn look_again(&mut self, session: &mut Session, now: Instant) {
        let (Some(access), Some(before)) = (&self.node.access, self.gate.principal()) else {
            return;
        };
        match access.again(before, self.node.moment()) {
            Ok(principal) => {
                let gate = Gate::of(principal);
                // It is there already, and not refused.
                let presence = self.enter(session, &gate, true).unwrap_or_default();
                self.let_in(session, now, gate, presence);
            }
            Err(denied) => self.throw_out(session, now, &denied),
        }
    }

    /// Asks for another token when the peer's is about to expire, and closes the connection when it has.
    pub(super) fn check_expiry(&mut self, session: &mut Session, now: Instant) {
        let Some(Expiry { ask, end }) = self.identification.expiry.as_deref().copied() else {
            return;
        };
        if end <= now {
            let denied = self
                .gate
                .principal()
                .map_or(Denied::UnknownToken, |principal| principal.expired());
            self.throw_out(session, now, &denied);
        } else if ask <= now {
            let ask = now + ASK_AGAIN;
            self.identification.expiry = Some(Box::new(Expiry { ask, end }));
            let header = self.replier.encode(&HeartbeatRequest::default());
            let asking = Outgoing {
                opcode: OpCode::HEARTBEAT,
                header,
                payload: &[],
                user: 0,
                deadline: Some(ask.min(end)),
                receive_charge: 0,
            };
            // A connection that is going away takes nothing more, and ends by itself.
            let _ = session.send_request(now, asking);
        }
    }

    /// The peer is not known any more: nothing of it is served, from now on.
    fn throw_out(&mut self, session: &mut Session, now: Instant, denied: &Denied) {
        let who = self.gate.principal().map(|principal| Arc::clone(&principal.name));
        self.audit(who, OpCode::GOAWAY, ErrorCode::UNAUTHORIZED);
        self.identification.expiry = None;
        let refusal = unauthorized(denied);
        let (work, mut turn) = self.turn(session, now);
        work.appends.change_rights(&mut turn, Err(&refusal));
        let goodbye = GoAway {
            status: refusal.into(),
            grace_ms: 0,
        };
        session.go_away(self.replier.encode(&goodbye), now);
        session.close();
    }
}
