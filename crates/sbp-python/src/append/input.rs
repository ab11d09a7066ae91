//! What a caller appends, and how it is to be stored.

use pyo3::prelude::*;
use sbp_record::Compression;
use sbp_types::{Offset, TimestampMs};

/// What one append is given: the records, and how they are stored.
#[derive(Clone, Copy)]
pub(crate) struct AppendInput<'a, 'py> {
    /// One record, several, or the rows of a table.
    pub(crate) data: &'a Bound<'py, PyAny>,
    /// The key of one record, or a list of the keys of several.
    pub(crate) key: Option<&'a Bound<'py, PyAny>>,
    /// The headers of one record, or a list of those of several.
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) options: AppendOptions,
}

/// How records are stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct AppendOptions {
    /// The time of the records; `None`: now.
    pub(crate) timestamp: Option<TimestampMs>,
    /// The offset the first record must get.
    pub(crate) expected_offset: Option<Offset>,
    pub(crate) compression: Compression,
}
