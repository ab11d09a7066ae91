//! How this crate and the interpreter meet: which threads may attach, which interpreter it works in, warnings, and Python
//! objects that are looked up once.

pub(crate) mod attach;
pub(crate) mod imports;
pub(crate) mod main_interpreter;
pub(crate) mod once;
pub(crate) mod warnings;
