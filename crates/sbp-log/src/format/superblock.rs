//! The superblock, a file that identifies the directory.

use sbp_types::ServerId;

use super::{
    FORMAT_VERSION, FORMAT_WITH_FENCES, Unreadable, begin_envelope_of, envelope_version, open_envelope_of,
    seal_envelope,
};

const MAGIC: &[u8; 8] = b"SBPSUPER";

/// Identity of a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// A random number drawn when the directory was created, to tell directories apart.
    pub(crate) directory_id: u64,
    /// How many times the directory has been opened.
    pub(crate) boot_id: u64,
    /// The server's id, once it has one.
    pub(crate) server_id: Option<ServerId>,
    /// Whether groups may have fences. Durable before the first fence is written, and never reset: a release that does
    /// not know fences refuses the directory by its version.
    pub(crate) has_fences: bool,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let version = if self.has_fences {
            FORMAT_WITH_FENCES
        } else {
            FORMAT_VERSION
        };
        let mut out = begin_envelope_of(MAGIC, version);
        out.extend_from_slice(&u32::from(self.server_id.is_some()).to_le_bytes());
        out.extend_from_slice(&self.directory_id.to_le_bytes());
        out.extend_from_slice(&self.boot_id.to_le_bytes());
        out.extend_from_slice(&self.server_id.unwrap_or_default().0.to_le_bytes());
        seal_envelope(out)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut fields = open_envelope_of(bytes, MAGIC, FORMAT_WITH_FENCES)?;
        let has_server = fields.u32() & 1 != 0;
        let directory_id = fields.u64();
        let boot_id = fields.u64();
        let server = ServerId(fields.i32());
        if !fields.ok() {
            return Err(Unreadable::Bad("too short"));
        }
        Ok(Self {
            directory_id,
            boot_id,
            server_id: has_server.then_some(server),
            has_fences: envelope_version(bytes) >= FORMAT_WITH_FENCES,
        })
    }
}
