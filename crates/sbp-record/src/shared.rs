//! Values that a process computes once and that all its threads share.

use crate::checksum::crc32c;
use crate::columns::plain_columns;

/// Computes now what is otherwise computed at first use and kept: the choice of instructions for the checksum, and the
/// columns of records without a schema.
///
/// While one thread computes such a value, others wait for it. In a child that was forked meanwhile that thread does
/// not exist, and the wait never ends. So a process that may be forked calls this before it starts threads.
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
