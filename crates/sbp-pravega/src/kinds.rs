//! The types of frames.

// Both sides.
pub(crate) const HELLO: i32 = -127;
pub(crate) const KEEP_ALIVE: i32 = 100;

// Of clients.
pub(crate) const SETUP_APPEND: i32 = 1;
pub(crate) const APPEND_BLOCK: i32 = 3;
pub(crate) const APPEND_BLOCK_END: i32 = 4;
pub(crate) const CONDITIONAL_APPEND: i32 = 5;
pub(crate) const READ_SEGMENT: i32 = 9;
pub(crate) const GET_SEGMENT_INFO: i32 = 11;
pub(crate) const CREATE_SEGMENT: i32 = 20;
pub(crate) const SEAL_SEGMENT: i32 = 28;
pub(crate) const DELETE_SEGMENT: i32 = 30;
pub(crate) const GET_ATTRIBUTE: i32 = 34;
pub(crate) const UPDATE_ATTRIBUTE: i32 = 36;
pub(crate) const TRUNCATE_SEGMENT: i32 = 38;
pub(crate) const CREATE_TABLE: i32 = 70;
pub(crate) const DELETE_TABLE: i32 = 71;
pub(crate) const UPDATE_ENTRIES: i32 = 74;
pub(crate) const REMOVE_KEYS: i32 = 76;
pub(crate) const READ_TABLE: i32 = 78;
pub(crate) const READ_KEYS: i32 = 83;
pub(crate) const READ_ENTRIES: i32 = 85;
pub(crate) const READ_DELTA: i32 = 88;
pub(crate) const CONDITIONAL_BLOCK_END: i32 = 89;

// Of servers.
pub(crate) const APPEND_SETUP: i32 = 2;
pub(crate) const DATA_APPENDED: i32 = 7;
pub(crate) const CONDITIONAL_CHECK_FAILED: i32 = 8;
pub(crate) const SEGMENT_READ: i32 = 10;
pub(crate) const SEGMENT_INFO: i32 = 12;
pub(crate) const SEGMENT_CREATED: i32 = 21;
pub(crate) const SEGMENT_SEALED: i32 = 29;
pub(crate) const SEGMENT_DELETED: i32 = 31;
pub(crate) const ATTRIBUTE: i32 = 35;
pub(crate) const ATTRIBUTE_UPDATED: i32 = 37;
pub(crate) const SEGMENT_TRUNCATED: i32 = 39;
pub(crate) const WRONG_HOST: i32 = 50;
pub(crate) const IS_SEALED: i32 = 51;
pub(crate) const ALREADY_EXISTS: i32 = 52;
pub(crate) const NO_SUCH_SEGMENT: i32 = 53;
pub(crate) const INVALID_EVENT_NUMBER: i32 = 55;
pub(crate) const IS_TRUNCATED: i32 = 56;
pub(crate) const NOT_SUPPORTED: i32 = 57;
pub(crate) const AUTH_FAILED: i32 = 60;
pub(crate) const ERROR_MESSAGE: i32 = 61;
pub(crate) const ENTRIES_UPDATED: i32 = 75;
pub(crate) const KEYS_REMOVED: i32 = 77;
pub(crate) const TABLE_READ: i32 = 79;
pub(crate) const NOT_EMPTY: i32 = 80;
pub(crate) const NO_SUCH_KEY: i32 = 81;
pub(crate) const BAD_VERSION: i32 = 82;
pub(crate) const KEYS_READ: i32 = 84;
pub(crate) const ENTRIES_READ: i32 = 86;
pub(crate) const DELTA_READ: i32 = 87;

/// Requests that servers know and this one does not do: to merge segments, to change a segment's policy, to find an offset,
/// what a table has, and what administrators ask. All begin with the id of the request.
pub(crate) const UNSUPPORTED: [(i32, &str); 6] = [
    (32, "UpdateSegmentPolicy"),
    (40, "LocateOffset"),
    (41, "LocateOffset"),
    (58, "MergeSegments"),
    (68, "GetTableSegmentInfo"),
    (90, "CreateTransientSegment"),
];

/// Whether a client says this.
pub(crate) fn is_request(kind: i32) -> bool {
    let is_served = matches!(
        kind,
        SETUP_APPEND | APPEND_BLOCK
            ..=CONDITIONAL_APPEND
                | READ_SEGMENT
                | GET_SEGMENT_INFO
                | CREATE_SEGMENT
                | SEAL_SEGMENT
                | DELETE_SEGMENT
                | GET_ATTRIBUTE
                | UPDATE_ATTRIBUTE
                | TRUNCATE_SEGMENT
                | CREATE_TABLE
                | DELETE_TABLE
                | UPDATE_ENTRIES
                | REMOVE_KEYS
                | READ_TABLE
                | READ_KEYS
                | READ_ENTRIES
                | READ_DELTA
                | CONDITIONAL_BLOCK_END
    );
    is_served || UNSUPPORTED.iter().any(|(of, _)| *of == kind)
}

/// Whether a server says this.
pub(crate) fn is_reply(kind: i32) -> bool {
    matches!(
        kind,
        APPEND_SETUP
            | DATA_APPENDED
            | CONDITIONAL_CHECK_FAILED
            | SEGMENT_READ
            | SEGMENT_INFO
            | SEGMENT_CREATED
            | SEGMENT_SEALED
            | SEGMENT_DELETED
            | ATTRIBUTE
            | ATTRIBUTE_UPDATED
            | SEGMENT_TRUNCATED
            | WRONG_HOST..=NO_SUCH_SEGMENT
            | INVALID_EVENT_NUMBER..=NOT_SUPPORTED
            | AUTH_FAILED
            | ERROR_MESSAGE
            | ENTRIES_UPDATED
            | KEYS_REMOVED
            | TABLE_READ..=BAD_VERSION
            | KEYS_READ
            | ENTRIES_READ
            | DELTA_READ
    )
}
