//! What the peer of one connection may do.

use std::cell::RefCell;
use std::sync::Arc;

use sbp_frame::OpCode;
use sbp_messages::ErrorCode;
use sbp_types::StreamId;

use super::grant::Rights;
use super::operations::{Requirement, Subject, required_grant, required_of_request};
use super::principal::Principal;
use crate::refusal::Refusal;

/// Who makes a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: Arc<str>,
    /// The most streams that the name may have made that exist.
    pub(crate) most: Option<u32>,
}

/// Decides over the requests of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// `None`: the server asks nobody who it is, and everybody may do everything.
    principal: Option<Arc<Principal>>,
}

impl Gate {
    /// The gate for somebody who is known.
    pub(crate) fn of(principal: Arc<Principal>) -> Self {
        Self {
            principal: Some(principal),
        }
    }

    /// The gate for somebody who has these grants.
    #[cfg(test)]
    pub(crate) fn of_billing(grants: &[&str]) -> Self {
        Self::of(Arc::new(Principal {
            name: "billing".into(),
            grants: super::grant::Grants::new(grants.iter().map(|grant| grant.parse().expect("a grant"))),
            usage: None,
            streams: None,
            expires: None,
            known_by: super::principal::KnownBy::Certificate("billing".into()),
        }))
    }

    /// Who the peer is, if the server asks.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        self.principal.as_ref()
    }

    /// Who has made a stream that the peer creates now, and how many it may have made.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.principal.as_ref().map(|principal| Owner {
            name: Arc::clone(&principal.name),
            most: principal.streams,
        })
    }

    /// Whether everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.principal.is_none()
    }

    /// Whether the request may be looked at.
    pub(crate) fn check_request(&self, opcode: OpCode) -> Result<(), Refusal> {
        self.check_everywhere(required_of_request(opcode))
    }

    /// Whether the peer may act as a server.
    pub(crate) fn check_server(&self) -> Result<(), Refusal> {
        self.check_everywhere(required_grant(OpCode::HEARTBEAT, Subject::FromServer))
    }

    /// Whether the peer may report what a server tells of itself.
    pub(crate) fn check_report(&self) -> Result<(), Refusal> {
        self.check_everywhere(required_grant(OpCode::REPORT_METRICS, Subject::FromServer))
    }

    /// Whether the peer may say what is to become of the cluster's servers.
    pub(crate) fn check_cluster(&self, opcode: OpCode) -> Result<(), Refusal> {
        self.check_everywhere(required_grant(opcode, Subject::Cluster))
    }

    /// Whether the peer may do something that concerns all streams.
    pub(crate) fn check_all_streams(&self, opcode: OpCode) -> Result<(), Refusal> {
        self.check_everywhere(required_grant(opcode, Subject::AllStreams))
    }

    fn check_everywhere(&self, needed: &Requirement) -> Result<(), Refusal> {
        match &self.principal {
            None => Ok(()),
            Some(_) if needed.rights == Rights::default() => Ok(()),
            Some(principal) if principal.has_everywhere(needed.rights) => Ok(()),
            Some(principal) => Err(forbidden(principal, needed, "", "*")),
        }
    }

    /// Whether the peer may do this to the stream of this name. The answer is the same whether it exists or not.
    pub(crate) fn check_name(&self, opcode: OpCode, subject: Subject, stream: &str) -> Result<(), Refusal> {
        let Some(principal) = &self.principal else {
            return Ok(());
        };
        let needed = required_grant(opcode, subject);
        if principal.has(needed.rights, stream) {
            return Ok(());
        }
        let what = format!(" stream {stream:?}");
        Err(forbidden(principal, needed, &what, stream))
    }

    /// Whether the peer may do this to the stream with this id. `judge` finds its name and returns what it is handed says
    /// of it. The answer is the same, and is found in the same way, whether the stream exists or not, unless the peer has
    /// the right on everything, when it is for whoever does it to say that there is no such stream, or another right on the
    /// stream.
    pub(crate) fn check_id(
        &self,
        opcode: OpCode,
        stream: StreamId,
        judge: impl FnOnce(StreamId, &dyn Fn(Option<&str>) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        self.check_id_as(required_grant(opcode, Subject::Stream), stream, judge)
    }

    /// The same where records of the stream may be lost by it.
    pub(crate) fn check_forced(
        &self,
        opcode: OpCode,
        stream: StreamId,
        judge: impl FnOnce(StreamId, &dyn Fn(Option<&str>) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        self.check_id_as(required_grant(opcode, Subject::Forced), stream, judge)
    }

    fn check_id_as(
        &self,
        needed: &Requirement,
        stream: StreamId,
        judge: impl FnOnce(StreamId, &dyn Fn(Option<&str>) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        let Some(principal) = &self.principal else {
            return Ok(());
        };
        if principal.has_everywhere(needed.rights) {
            return Ok(());
        }
        let sees = required_grant(OpCode::DESCRIBE_STREAMS, Subject::Stream).rights;
        let seen = RefCell::new(None);
        let allowed = judge(stream, &|name| {
            let text = name.unwrap_or_default();
            let has = principal.has(needed.rights, text);
            if !has && principal.has(sees, text) {
                seen.replace(name.map(str::to_owned));
            }
            has
        });
        if allowed {
            return Ok(());
        }
        // Who has another right on it knows that it is there, and is told by its name what is missing.
        if let Some(name) = seen.into_inner() {
            return Err(forbidden(principal, needed, &format!(" stream {name:?}"), &name));
        }
        let what = format!(" stream {stream}, or there is no such stream");
        Err(forbidden(principal, needed, &what, ""))
    }

    /// Whether the peer is shown the stream of this name when it asks for all.
    pub(crate) fn lists(&self, stream: Option<&str>) -> bool {
        let listed = || required_grant(OpCode::DESCRIBE_STREAMS, Subject::AllStreams).rights;
        self.principal
            .as_ref()
            .is_none_or(|principal| principal.has(listed(), stream.unwrap_or_default()))
    }
}

/// `stream`: the name that the grant would have; empty when it is not to be told.
fn forbidden(principal: &Principal, needed: &Requirement, what: &str, stream: &str) -> Refusal {
    // A reader is not told to ask for the rights of a server.
    let is_told = |right: &super::Right| {
        *right != super::Right::Server || needed.rights.iter().all(|other| other != super::Right::Read)
    };
    let grants: Vec<_> = needed
        .rights
        .iter()
        .filter(is_told)
        .map(|right| match (right, stream) {
            (super::Right::Server, _) | (_, "") => right.word().to_owned(),
            (right, stream) => format!("{}:{stream}", right.word()),
        })
        .collect();
    let on_it = if stream.is_empty() { " on it" } else { "" };
    let message = format!(
        "{} may not {}{what}: that needs the grant {}{on_it}; ask the server's operator for it",
        principal.name,
        needed.verb,
        grants.join(" or ")
    );
    Refusal::new(ErrorCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(grants: &[&str]) -> Gate {
        Gate::of_billing(grants)
    }

    fn judge(id: StreamId, allowed: &dyn Fn(Option<&str>) -> bool) -> bool {
        allowed(match id.0 {
            1 => Some("orders/eu"),
            2 => Some("stock"),
            // A stream without a name.
            3 => None,
            _ => None,
        })
    }

    #[test]
    fn a_forbidden_stream_and_one_that_does_not_exist_are_answered_alike() {
        let gate = gate(&["read:orders/*"]);
        let answer = |id| gate.check_id(OpCode::FETCH, StreamId(id), judge);
        assert_eq!(answer(1), Ok(()));
        let alike = |id: i64| {
            let refusal = answer(id).expect_err("forbidden");
            (refusal.code, refusal.message.replace(&id.to_string(), "N"))
        };
        let forbidden = alike(2);
        assert_eq!(forbidden.0, ErrorCode::FORBIDDEN);
        assert_eq!(
            forbidden.1,
            "billing may not read stream N, or there is no such stream: that needs the grant read on it; ask the server's \
             operator for it"
        );
        assert_eq!(alike(3), forbidden);
        assert_eq!(alike(4), forbidden);
        // Who may see everything is told the truth, by whoever looks for the stream.
        assert_eq!(
            self::gate(&["read:*"]).check_id(OpCode::FETCH, StreamId(4), judge),
            Ok(())
        );
    }

    /// The same work for both, not only the same words: a stream's name is looked for once, and not at all where rights on
    /// everything make it needless.
    #[test]
    fn a_forbidden_stream_and_one_that_does_not_exist_take_the_same_work() {
        let looks = |gate: &Gate, opcode, id| {
            let mut looks = 0;
            let judged = gate.check_id(opcode, StreamId(id), |id, allowed| {
                looks += 1;
                judge(id, allowed)
            });
            (looks, judged.is_ok())
        };
        let (some, all) = (gate(&["read:orders/*"]), gate(&["read:*", "write:*", "admin:*"]));
        for opcode in [
            OpCode::FETCH,
            OpCode::APPEND,
            OpCode::DESCRIBE_STREAMS,
            OpCode::TRIM_STREAMS,
        ] {
            // One that is there, one without a name, and two that do not exist.
            for id in [2, 3, 4, 5] {
                assert_eq!(looks(&some, opcode, id), (1, false), "{opcode} of {id}");
                assert_eq!(looks(&all, opcode, id), (0, true), "{opcode} of {id}");
            }
        }
    }

    #[test]
    fn who_sees_a_stream_is_told_by_its_name_what_is_missing() {
        let gate = gate(&["read:orders/*"]);
        let refused = gate
            .check_id(OpCode::APPEND, StreamId(1), judge)
            .expect_err("forbidden");
        assert_eq!(refused.code, ErrorCode::FORBIDDEN);
        assert_eq!(
            refused.message,
            "billing may not append to stream \"orders/eu\": that needs the grant write:orders/eu; ask the server's operator \
             for it"
        );
        // One without a name has none to be told.
        let refused = self::gate(&["read:*"]).check_id(OpCode::APPEND, StreamId(3), judge);
        let refused = refused.expect_err("forbidden").message;
        assert!(refused.contains("stream 3, or there is no such stream"), "{refused}");
    }

    #[test]
    fn the_missing_grant_is_named() {
        let gate = gate(&["read:orders/*", "write:orders/eu"]);
        assert_eq!(
            gate.check_name(OpCode::DESCRIBE_STREAMS, Subject::Stream, "orders/us"),
            Ok(())
        );
        let refused = gate.check_name(OpCode::CREATE_STREAMS, Subject::NewName, "orders/us");
        assert_eq!(
            refused.expect_err("forbidden").message,
            "billing may not create stream \"orders/us\": that needs the grant admin:orders/us; ask the server's operator \
             for it"
        );
        let refused = gate.check_server().expect_err("forbidden").message;
        assert!(
            refused.contains("may not act as a server: that needs the grant server;"),
            "{refused}"
        );
        let refused = gate
            .check_all_streams(OpCode::LIST_RANGES)
            .expect_err("forbidden")
            .message;
        assert!(refused.contains("the grant admin:* or server;"), "{refused}");
        assert!(gate.lists(Some("orders/us")) && !gate.lists(Some("stock")) && !gate.lists(None));
        assert_eq!(gate.check_request(OpCode::APPEND), Ok(()));
        assert!(gate.check_request(OpCode::SYNC_RANGES).is_err());
    }

    #[test]
    fn without_access_control_everything_is_allowed() {
        let open = Gate::default();
        assert!(open.is_open() && open.lists(None));
        assert_eq!(open.check_id(OpCode::APPEND, StreamId(9), judge), Ok(()));
        assert_eq!(open.check_name(OpCode::CREATE_STREAMS, Subject::NewName, "x"), Ok(()));
        assert_eq!(open.check_request(OpCode::SYNC_RANGES), Ok(()));
    }
}
