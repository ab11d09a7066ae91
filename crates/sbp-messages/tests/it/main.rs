//! Messages from outside: their bytes, what they cost, and what the pages about them say.

mod allocations;
mod documents;
mod specification;
mod vectors;
