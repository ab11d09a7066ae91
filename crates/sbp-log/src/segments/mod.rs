//! The files of a log's directory: its lock, file names, creating and opening segments, and footers.

pub(crate) mod claim;
pub(crate) mod files;
pub(crate) mod footers;
pub(crate) mod open_files;
pub(crate) mod prepare;
pub(crate) mod segment;
