//! Regular tasks of a server.

mod report;
mod retention;
mod scrub;

pub(crate) use report::watch_itself;
pub(crate) use retention::trim_what_is_due;
pub(crate) use scrub::scrub_what_is_sealed;
