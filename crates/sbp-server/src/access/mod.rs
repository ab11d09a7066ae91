//! Who asks, and what it may do.
//!
//! Everything that decides is pure: [`Grants`](grant::Grants), [`Known`], [`Gate`], the table of
//! [`operations`]. [`Access`] is around it: the file of names, and its reading again when it changes; [`Audit`] writes
//! down what came of it.

mod audit;
mod entry;
mod error;
mod file;
mod gate;
mod grant;
mod issuer;
mod key_url;
mod moment;
mod name_change;
mod operations;
mod principal;
mod quota;
mod secret;
mod usage;
mod watched;

pub use self::entry::{BadLine, Entry, read_entries, write_entry};
pub use self::error::AccessError;
pub use self::file::AuthFile;
pub use self::grant::{BadGrant, Grant, Right};
#[cfg(feature = "testing")]
pub use self::issuer::judge_signed;
pub use self::moment::{BadMoment, Moment};
pub use self::operations::{OperationRow, Subject, operations};
pub use self::quota::{BadQuota, Quota};
pub use self::secret::{BadDigest, TokenDigest, new_token};

pub(crate) use self::audit::{Asker, Audit, Deed};
pub(crate) use self::file::Access;
pub(crate) use self::gate::{Gate, Owner};
pub(crate) use self::key_url::KeyUrl;
pub(crate) use self::principal::Denied;
pub(crate) use self::usage::{Direction, Presence};
