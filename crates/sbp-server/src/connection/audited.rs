//! What of a connection's requests is counted, logged, and written to the audit file.

use std::sync::Arc;

use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, Status};
use sbp_types::{ServerId, StreamId};

use super::changes::Asked;
use super::handle::Turn;
use crate::access::{Asker, Audit, Deed};
use crate::placement::{Outcome, Outcomes};
use crate::refusal::Refusal;

impl Turn<'_> {
    /// Counts and logs how a request ended, if it was refused.
    pub(super) fn note(&self, opcode: OpCode, status: &Status) {
        self.note_entry(opcode, (None, ""), status);
    }

    /// The same of one entry of a request, and the id or the name of the stream that it is about.
    pub(super) fn note_entry(&self, opcode: OpCode, about: (Option<StreamId>, &str), status: &Status) {
        if status.is_success() {
            return;
        }
        self.node.refusals.note(opcode, status, self.handle.id, self.now);
        let (stream, name) = about;
        let entry_of_change = stream.is_some() || !name.is_empty();
        if let Some(audit) = &self.node.audit
            && [ErrorCode::UNAUTHORIZED, ErrorCode::FORBIDDEN].contains(&status.code)
            // The entries of these are written when they are done.
            && !(entry_of_change && self.node.placement.is_some() && is_change(opcode))
        {
            let known = stream.filter(|_| name.is_empty()).and_then(|id| self.node.name_of(id));
            let deed = Deed {
                stream,
                name: known.as_deref().unwrap_or(name),
                ..Deed::new(opcode, status.code)
            };
            audit.note(&self.audited_asker(), &deed);
        }
    }

    fn audited_asker(&self) -> Asker {
        Asker {
            who: self.gate.principal().map(|principal| Arc::clone(&principal.name)),
            from: self.origin.address,
        }
    }
}

/// Whether an operation changes streams or ranges.
fn is_change(opcode: OpCode) -> bool {
    [
        OpCode::CREATE_STREAMS,
        OpCode::UPDATE_STREAMS,
        OpCode::DELETE_STREAMS,
        OpCode::TRIM_STREAMS,
        OpCode::SEAL_RANGES,
        OpCode::CREATE_RANGE,
    ]
    .contains(&opcode)
}

/// A change under way that is written to the audit file when it is done, with what is known only before.
pub(super) struct AuditedChange {
    audit: Arc<Audit>,
    asker: Asker,
    operation: OpCode,
    /// The streams that the entries are about, and their names.
    entries: Vec<(Option<StreamId>, String)>,
    /// The range server that it is about.
    server: Option<ServerId>,
    /// What was asked in particular.
    how: Option<&'static str>,
}

impl AuditedChange {
    /// `None` where no audit file is kept.
    pub(super) fn new(turn: &Turn<'_>, operation: OpCode, asked: Asked) -> Option<Self> {
        let audit = Arc::clone(turn.node.audit.as_ref()?);
        let name_of = |id| turn.node.name_of(id).as_deref().unwrap_or_default().to_owned();
        let (server, how) = match &asked {
            Asked::Server(server, how) => (Some(*server), Some(*how)),
            Asked::Forced(_) => (None, Some("force")),
            Asked::Names(_) | Asked::Ids(_) => (None, None),
        };
        let entries = match asked {
            Asked::Names(names) => names.into_iter().map(|name| (None, name)).collect(),
            Asked::Ids(ids) | Asked::Forced(ids) => ids.into_iter().map(|id| (Some(id), name_of(id))).collect(),
            Asked::Server(..) => vec![(None, String::new())],
        };
        Some(Self {
            audit,
            asker: turn.audited_asker(),
            operation,
            entries,
            server,
            how,
        })
    }

    /// Writes what has come of it.
    pub(super) fn done(&self, answer: &Result<Outcomes, Refusal>) {
        for (number, (stream, name)) in self.entries.iter().enumerate() {
            let asked = Deed {
                stream: *stream,
                name,
                server: self.server,
                how: self.how,
                ..Deed::new(self.operation, ErrorCode::NONE)
            };
            let outcome = match answer {
                Ok(outcomes) => outcomes.get(number).map(Result::as_ref),
                Err(refusal) => Some(Err(refusal)),
            };
            let deed = match outcome {
                None => continue,
                Some(Err(refusal)) => Deed {
                    code: refusal.code,
                    ..asked
                },
                Some(Ok(Outcome::Stream(record) | Outcome::StreamRange(record, _))) => {
                    let now = record.name.as_deref();
                    Deed {
                        new_name: now.filter(|now| *now != name),
                        ..asked
                    }
                }
                Some(Ok(Outcome::NewStream(record, _))) => Deed {
                    stream: Some(record.id),
                    ..asked
                },
                Some(Ok(Outcome::Range(range) | Outcome::RangeBehindLoss(range, _))) => Deed {
                    range: Some(range.key.range),
                    ..asked
                },
                Some(Ok(Outcome::Server(_) | Outcome::Done)) => asked,
            };
            self.audit.note(&self.asker, &deed);
        }
    }
}
