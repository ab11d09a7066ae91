//! The code that `flatc` makes from `schemas/sbp.fbs`, and nothing else.
//!
//! `src/generated` is checked in and never edited: `cargo xtask codegen` writes it, `cargo xtask codegen --check`
//! compares it. Building this crate needs no `flatc`.
//!
//! An accessor of a generated table is sound only on bytes that were verified. Two crates name these types,
//! `sbp-messages` for headers and `sbp-record` for the head of a batch; each has one function that verifies, and no
//! other way from bytes to a table.

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    dead_code,
    deprecated,
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    unused_extern_crates,
    unused_imports,
    unused_qualifications,
    reason = "generated code is not edited, and its style is not ours"
)]
#[rustfmt::skip]
mod generated;

/// The tables of the wire schema, revision 1.
pub use generated::sbp::v_01 as v01;

/// The compiler's release, from `schemas/FLATC_VERSION`. It must be the release of the `flatbuffers` crate.
pub const FLATC_VERSION: &str = include_str!("../../../schemas/FLATC_VERSION").trim_ascii();
