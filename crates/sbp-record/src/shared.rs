//! What a process makes once, and all its threads share.

use crate::checksum::crc32c;
use crate::columns::plain_columns;

/// Makes now what is otherwise made at first use and kept for the process: which instructions the checksum takes, and the
/// columns of records without a schema.
///
/// Whoever comes while one thread makes such a thing waits until it is made. In a child that was forked meanwhile nobody
/// makes it any more. So a process that may be forked calls this before it has threads.
pub fn make_shared() {
    crc32c(&[]);
    plain_columns();
}

#[cfg(test)]
mod tests {
    #[test]
    fn making_it_again_changes_nothing() {
        super::make_shared();
        let columns = crate::columns::plain_columns();
        super::make_shared();
        assert!(std::ptr::eq(columns, crate::columns::plain_columns()));
    }
}
