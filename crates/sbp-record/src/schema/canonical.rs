//! The canonical form of columns, and its fingerprints.

use arrow_schema::{Field, Fields};
use sha2::{Digest, Sha256};

use super::types::{children, type_word};

/// The canonical form of `fields`, and the fingerprints of the first column, the first two, and so on up to all.
///
/// The form of the first columns is a prefix of the form of all, so one pass gives all fingerprints.
pub(super) fn encode(fields: &Fields) -> (Vec<u8>, Vec<u64>) {
    let mut form = Vec::new();
    let mut hash = Sha256::new();
    let prefixes = fields
        .iter()
        .map(|field| {
            let from = form.len();
            put_field(field, &mut form);
            hash.update(form.get(from..).unwrap_or_default());
            fingerprint(&hash.clone().finalize())
        })
        .collect();
    (form, prefixes)
}

fn put_field(field: &Field, out: &mut Vec<u8>) {
    put_text(field.name(), out);
    put_text(&type_word(field.data_type()), out);
    out.push(field.is_nullable().into());
    let children = children(field.data_type());
    put_length(children.len(), out);
    for child in children {
        put_field(child, out);
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn fingerprint(digest: &[u8]) -> u64 {
    digest.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first))
}
