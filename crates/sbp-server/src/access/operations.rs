//! What each operation needs: the one table from which it is enforced, documented and tested.

use sbp_frame::OpCode;

use super::grant::{Right, Rights};

/// What an entry of a request is about, as far as the grant depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The request as a whole, whoever sends it.
    Request,
    /// The request as a whole, from a server (role 1 or 2 of HEARTBEAT, or what only servers ask).
    FromServer,
    /// A stream that exists, or would, named by its id or its name.
    Stream,
    /// A stream that exists, whose records may be lost by it.
    Forced,
    /// A stream that gets this name.
    NewName,
    /// All streams at once.
    AllStreams,
    /// What is to become of the cluster's servers.
    Cluster,
}

impl Subject {
    /// What it is, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Request => "the request",
            Self::FromServer => "the request, as a server",
            Self::Stream => "a stream",
            Self::Forced => "a stream, whose records may be lost",
            Self::NewName => "a stream's new name",
            Self::AllStreams => "all streams",
            Self::Cluster => "the cluster",
        }
    }
}

/// One row of the table, as pages and tests use it.
#[derive(Clone, Debug)]
pub struct OperationRow {
    /// The operation.
    pub opcode: OpCode,
    /// What of it the row is about.
    pub subject: Subject,
    /// One of these is needed; none: it is enough to be known.
    pub rights: Vec<Right>,
}

/// The table of what each operation needs.
#[must_use]
pub fn operations() -> Vec<OperationRow> {
    let public = |row: &Requirement| OperationRow {
        opcode: row.opcode,
        subject: row.subject,
        rights: row.rights.iter().collect(),
    };
    REQUIREMENTS.iter().map(public).collect()
}

/// One row: an operation, an entry of it, and the rights of which one is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
    pub(crate) opcode: OpCode,
    pub(crate) subject: Subject,
    /// What it does, for people: a verb that fits behind "may not".
    pub(crate) verb: &'static str,
    /// One of these is needed; none: it is enough to be known.
    pub(crate) rights: Rights,
}

const NOTHING: Rights = Rights::of(&[]);
/// A server reads what damage has taken from its own copies.
const READ_OR_SERVER: Rights = Rights::of(&[Right::Read, Right::Server]);
const WRITE: Rights = Rights::of(&[Right::Write]);
const ADMIN: Rights = Rights::of(&[Right::Admin]);
const SERVER: Rights = Rights::of(&[Right::Server]);
const ADMIN_OR_SERVER: Rights = Rights::of(&[Right::Admin, Right::Server]);
/// Whoever may do anything to a stream may know where and what it is.
const ANY: Rights = Rights::of(&[Right::Read, Right::Write, Right::Admin, Right::Server]);
/// Who is shown a stream without having named it.
const LISTED: Rights = Rights::of(&[Right::Read, Right::Admin, Right::Server]);

const fn row(opcode: OpCode, subject: Subject, verb: &'static str, rights: Rights) -> Requirement {
    Requirement {
        opcode,
        subject,
        verb,
        rights,
    }
}

/// The table. PING and GOAWAY are not in it: they need nothing, not even to be known.
pub(crate) const REQUIREMENTS: &[Requirement] = &[
    row(OpCode::HEARTBEAT, Subject::Request, "say hello", NOTHING),
    row(OpCode::HEARTBEAT, Subject::FromServer, "act as a server", SERVER),
    row(
        OpCode::ALLOCATE_ID,
        Subject::FromServer,
        "get a server's number",
        SERVER,
    ),
    row(OpCode::APPEND, Subject::Stream, "append to", WRITE),
    row(OpCode::FETCH, Subject::Stream, "read", READ_OR_SERVER),
    row(OpCode::LIST_RANGES, Subject::Stream, "see the ranges of", ANY),
    row(
        OpCode::LIST_RANGES,
        Subject::AllStreams,
        "see the ranges of a server of",
        ADMIN_OR_SERVER,
    ),
    row(OpCode::SEAL_RANGES, Subject::Stream, "seal ranges of", ADMIN_OR_SERVER),
    row(
        OpCode::SEAL_RANGES,
        Subject::Forced,
        "force the seal of a range of",
        ADMIN,
    ),
    row(OpCode::SYNC_RANGES, Subject::FromServer, "synchronise ranges", SERVER),
    row(OpCode::CREATE_RANGE, Subject::Stream, "create a range of", ADMIN),
    row(OpCode::DESCRIBE_RANGES, Subject::Stream, "see the ranges of", ANY),
    row(OpCode::CREATE_STREAMS, Subject::NewName, "create", ADMIN),
    row(OpCode::DELETE_STREAMS, Subject::Stream, "delete", ADMIN_OR_SERVER),
    row(OpCode::UPDATE_STREAMS, Subject::Stream, "change", ADMIN),
    row(OpCode::UPDATE_STREAMS, Subject::NewName, "rename a stream to", ADMIN),
    row(OpCode::DESCRIBE_STREAMS, Subject::Stream, "see", ANY),
    row(OpCode::DESCRIBE_STREAMS, Subject::AllStreams, "list", LISTED),
    row(OpCode::TRIM_STREAMS, Subject::Stream, "trim", ADMIN),
    row(
        OpCode::REPORT_METRICS,
        Subject::Cluster,
        "say what is to become of a server",
        ADMIN,
    ),
    row(
        OpCode::REPORT_METRICS,
        Subject::FromServer,
        "report a server's load",
        SERVER,
    ),
    row(OpCode::DESCRIBE_PD_CLUSTER, Subject::Request, "ask who leads", NOTHING),
];

/// An operation that the table does not name is for servers: one that is new is forbidden to others until it has a row.
const UNNAMED: Requirement = row(OpCode(0), Subject::FromServer, "do this", SERVER);

/// What an entry of an operation needs.
pub(crate) fn required_grant(opcode: OpCode, subject: Subject) -> &'static Requirement {
    let matches = |row: &&Requirement| row.opcode == opcode && row.subject == subject;
    REQUIREMENTS.iter().find(matches).unwrap_or(&UNNAMED)
}

/// What a request needs as a whole, before its entries are looked at.
pub(crate) fn required_of_request(opcode: OpCode) -> &'static Requirement {
    /// The entries need something each, or nothing is needed.
    const BY_ENTRY: &Requirement = &row(OpCode(0), Subject::Request, "do this", NOTHING);
    match REQUIREMENTS.iter().find(|row| row.opcode == opcode) {
        None => &UNNAMED,
        Some(row) if row.subject == Subject::FromServer => row,
        Some(_) => BY_ENTRY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_row_and_a_new_one_is_for_servers() {
        for opcode in OpCode::ALL
            .iter()
            .filter(|opcode| ![OpCode::PING, OpCode::GOAWAY].contains(opcode))
        {
            let rows = REQUIREMENTS.iter().filter(|row| row.opcode == *opcode);
            assert!(rows.count() > 0, "{opcode} has no row: say who may do it, and test it");
        }
        for (place, row) in REQUIREMENTS.iter().enumerate() {
            let same = |other: &&Requirement| (other.opcode, other.subject) == (row.opcode, row.subject);
            assert_eq!(REQUIREMENTS.iter().filter(same).count(), 1, "row {place}");
            assert_eq!(required_grant(row.opcode, row.subject).verb, row.verb);
        }
        let unheard_of = OpCode(0x7fff);
        assert_eq!(required_grant(unheard_of, Subject::Stream).rights, SERVER);
        assert_eq!(required_of_request(unheard_of).rights, SERVER);
        assert_eq!(required_of_request(OpCode::APPEND).rights, NOTHING);
        assert_eq!(required_of_request(OpCode::SYNC_RANGES).rights, SERVER);
    }
}
