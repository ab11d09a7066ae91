//! Damage on the disk of a server, and directories in which it is found.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use sbp_server::ServerConfig;
use sbp_types::StreamId;

use crate::peer::Peer;
use crate::servers::config;

/// Turns over a bit of the first byte in the log that begins with this.
pub fn damage(directory: &Path, content: &[u8]) {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    for path in files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("segment-")) {
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
            return;
        }
    }
    panic!("the record is in no segment");
}

/// Turns over a bit in the head of the batch that begins with this, the only one of its group in the log.
pub fn damage_head(directory: &Path, content: &[u8]) {
    /// Where groups begin, and where the head of their first batch is.
    const GROUP: usize = 4_096;
    const HEAD: usize = 64;
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    for path in files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("segment-")) {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
            bytes[at / GROUP * GROUP + HEAD + 20] ^= 1;
            fs::write(&path, &bytes).unwrap();
            return;
        }
    }
    panic!("the record is in no segment");
}

/// A server that looks for damage all the time, in segments that are soon full.
pub fn watchful_config(directory: &Path) -> ServerConfig {
    ServerConfig {
        scrub_interval: Duration::from_millis(5),
        segment_bytes: Some(1 << 20),
        ..config(Some(directory))
    }
}

/// A stream with these records, in a segment that is sealed: the log keeps in memory what it wrote lately, so that only what
/// came before is read from the disk.
pub fn sealed_records(peer: &mut Peer, records: &[&[u8]]) -> StreamId {
    let stream = peer.create("quiet");
    for record in records {
        peer.store(stream, record);
    }
    let other = peer.create("busy");
    for _ in 0..40 {
        peer.store(other, &[7; 60_000]);
    }
    stream
}
