//! The superblock, a file that identifies the directory.

use bytes::{Buf, BufMut};
use sbp_types::ServerId;

use super::{
    FORMAT_VERSION, FORMAT_WITH_BARE_FENCES, FORMAT_WITH_MARKS, Unreadable, begin_envelope_of, open_envelope_of,
    seal_envelope,
};

const MAGIC: &[u8; 8] = b"SBPSUPER";

/// The bits of the flags.
const HAS_SERVER: u32 = 1;
const RESTORED: u32 = 2;

/// What the groups of a directory may have. A release that does not know it would take it for damage, so it refuses the
/// directory by its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Groups {
    /// Batches of ranges without copies elsewhere.
    #[default]
    Batches,
    /// Fences too, which do not say how many marks are before them. Not written any more.
    BareFences,
    /// Marks with their numbers, and entries of ranges with copies elsewhere.
    Marks,
}

/// Identity of a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// A random number drawn when the directory was created, to tell directories apart.
    pub(crate) directory_id: u64,
    /// How many times the directory has been opened.
    pub(crate) boot_id: u64,
    /// The server's id, once it has one.
    pub(crate) server_id: Option<ServerId>,
    /// The directory was made from a backup of a server with an id, which it has lost by that.
    pub(crate) restored: bool,
    /// What groups may have. Durable before the first group that has it, and never reset.
    pub(crate) groups: Groups,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let version = match self.groups {
            Groups::Batches => FORMAT_VERSION,
            Groups::BareFences => FORMAT_WITH_BARE_FENCES,
            Groups::Marks => FORMAT_WITH_MARKS,
        };
        let mut out = begin_envelope_of(MAGIC, version);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        out.put_u32_le(flag(self.server_id.is_some(), HAS_SERVER) | flag(self.restored, RESTORED));
        out.put_u64_le(self.directory_id);
        out.put_u64_le(self.boot_id);
        out.put_i32_le(self.server_id.unwrap_or_default().0);
        seal_envelope(out)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut fields) = open_envelope_of(bytes, MAGIC, FORMAT_WITH_MARKS)?;
        let flags = fields.try_get_u32_le()?;
        Ok(Self {
            directory_id: fields.try_get_u64_le()?,
            boot_id: fields.try_get_u64_le()?,
            server_id: Some(ServerId(fields.try_get_i32_le()?)).filter(|_| flags & HAS_SERVER != 0),
            restored: flags & RESTORED != 0,
            groups: match version {
                FORMAT_WITH_MARKS => Groups::Marks,
                FORMAT_WITH_BARE_FENCES => Groups::BareFences,
                _ => Groups::Batches,
            },
        })
    }
}
