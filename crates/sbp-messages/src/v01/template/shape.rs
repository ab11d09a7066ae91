//! The four shapes of templates, and the positions in a header with a given number of entries.

/// Bytes of an offset, of a vector's length, and of every scalar in a root table.
pub(crate) const WORD: u32 = 4;

/// Messages with more entries go through the builder and the verifier. Up to here every position fits into 32 bits, and
/// the verifier's limit of tables is not reached.
const MOST_ENTRIES: u32 = 16_384;

/// The position of the root's vtable, in every shape.
const ROOT_VTABLE: u32 = 4;
/// The size of the vtable of a status that has only a code; it is the last of its shape's vtables.
const STATUS_VTABLE_SIZE: u32 = 6;

/// The constants of a header: `HEAD` bytes before the root table, `ROOT` words in it, `BLOCK` bytes for each entry, a
/// multiple of 8.
pub(crate) struct Shape<const HEAD: usize, const ROOT: usize, const BLOCK: usize> {
    /// The offset of the root table and the vtables.
    pub(super) head: [u8; HEAD],
    /// The position of the entries' vtable.
    entry_vtable: u32,
    /// The index of the root table's word that refers to the vector.
    vector_word: u32,
    /// In responses: the position of the status's offset in a block.
    pub(super) status_in_block: u32,
}

pub(crate) const APPEND_REQUEST: Shape<28, 3, 40> = Shape {
    head: head([8, 12, 4, 8, 16, 40, 16, 4, 8, 12, 24, 32]),
    entry_vtable: 12,
    vector_word: 2,
    status_in_block: 0,
};

pub(crate) const FETCH_REQUEST: Shape<32, 5, 48> = Shape {
    head: head([12, 20, 4, 8, 16, 12, 16, 48, 16, 4, 24, 8, 32, 40]),
    entry_vtable: 16,
    vector_word: 4,
    status_in_block: 0,
};

pub(crate) const APPEND_RESPONSE: Shape<40, 4, 56> = Shape {
    head: head([10, 16, 4, 12, 8, 20, 56, 16, 4, 24, 32, 8, 40, 12, 48, 6, 8, 4]),
    entry_vtable: 14,
    vector_word: 3,
    status_in_block: 8,
};

pub(crate) const FETCH_RESPONSE: Shape<44, 4, 64> = Shape {
    head: head([10, 16, 4, 12, 8, 24, 64, 24, 4, 8, 12, 32, 40, 48, 56, 16, 20, 6, 8, 4]),
    entry_vtable: 14,
    vector_word: 3,
    status_in_block: 12,
};

/// Lays out the root's offset and the vtables, given as the 16-bit words that they consist of.
const fn head<const WORDS: usize, const HEAD: usize>(vtables: [u8; WORDS]) -> [u8; HEAD] {
    assert!(HEAD == 4 + 2 * WORDS, "the vtables end where the root table begins");
    let mut bytes = [0; HEAD];
    bytes[0] = HEAD.to_le_bytes()[0];
    let mut word = 0;
    while word < WORDS {
        bytes[4 + 2 * word] = vtables[word];
        word += 1;
    }
    bytes
}

/// The positions, from the header's start, that depend on the number of entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    /// The number of entries.
    pub(super) count: u32,
    /// The distance from the first offset in the vector to the first entry.
    pub(super) first_distance: u32,
    /// Zero bytes between the vector and the first entry: 0 or 4.
    pub(super) gap: usize,
    /// The position of the first entry.
    pub(super) first_entry: u32,
    /// The end of the last entry; in responses the status follows.
    pub(super) end: u32,
}

impl<const HEAD: usize, const ROOT: usize, const BLOCK: usize> Shape<HEAD, ROOT, BLOCK> {
    /// The position of the root table.
    const ROOT_TABLE: u32 = HEAD as u32;
    /// The position of the vector, after the root table.
    const VECTOR: u32 = Self::ROOT_TABLE + WORD * ROOT as u32;
    /// The size of an entry.
    pub(crate) const STEP: u32 = BLOCK as u32;

    /// The positions in a header of `count` entries; `None` if there are too many for the template.
    pub(crate) fn positions(&self, count: u32) -> Option<Positions> {
        if count > MOST_ENTRIES {
            return None;
        }
        let first_offset = Self::VECTOR + WORD;
        let vector_end = first_offset + WORD * count;
        let first_entry = vector_end.next_multiple_of(8);
        Some(Positions {
            count,
            first_distance: first_entry - first_offset,
            gap: if first_entry == vector_end { 0 } else { 4 },
            first_entry,
            end: first_entry + Self::STEP * count,
        })
    }

    /// The root table's first word: its distance from its vtable.
    pub(crate) const fn root_to_vtable(&self) -> u32 {
        Self::ROOT_TABLE - ROOT_VTABLE
    }

    /// The root table's word that refers to the vector.
    pub(crate) const fn root_to_vector(&self) -> u32 {
        Self::VECTOR - (Self::ROOT_TABLE + WORD * self.vector_word)
    }

    /// The root table's third word in responses, which refers to the status.
    pub(crate) const fn root_to_status(&self, at: Positions) -> u32 {
        at.end - (Self::ROOT_TABLE + WORD * 2)
    }

    /// The first word of the first entry: its distance from its vtable. For each further entry it is [`Self::STEP`]
    /// more.
    pub(crate) const fn entry_to_vtable(&self, at: Positions) -> u32 {
        at.first_entry - self.entry_vtable
    }

    /// The word of the first entry that refers to the status. For each further entry it is [`Self::STEP`] less. Without
    /// entries it wraps and is not used.
    pub(crate) const fn entry_to_status(&self, at: Positions) -> u32 {
        at.end.wrapping_sub(at.first_entry + self.status_in_block)
    }

    /// The status that all entries share: its vtable, code 0, padding. It comes after the last entry, because offsets
    /// can only refer forward.
    pub(crate) fn status(&self, at: Positions) -> [u8; 8] {
        let vtable = Self::ROOT_TABLE - STATUS_VTABLE_SIZE;
        u64::from(at.end - vtable).to_le_bytes()
    }
}
