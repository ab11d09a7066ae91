//! Fuzz targets: functions that take any bytes and panic when something is wrong.
//!
//! Each target is a module with `run` and `seeds`; the binaries of the same names hand it to libFuzzer, and the crate's
//! tests run it over its seeds. `cargo xtask fuzz` builds the binaries with coverage, on the stable toolchain, and runs
//! them. The seeds are made from `tests/vectors`.

pub mod batch;
pub mod bundle;
pub mod controller;
mod disk;
pub mod frame;
pub mod message;
#[cfg(feature = "names")]
pub mod names;
pub mod pravega;
pub mod recovery;
pub mod seastar;
pub mod session;
pub mod stranger;
pub mod tank;
#[path = "../../../tests/vectors/reader.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared by several tests")]
mod vectors;
mod world;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its binary behind `fuzz-`.
    pub name: &'static str,
    /// Takes any bytes; panics when something is wrong.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frame",
        run: frame::run,
        seeds: frame::seeds,
    },
    Target {
        name: "message",
        run: message::run,
        seeds: message::seeds,
    },
    Target {
        name: "batch",
        run: batch::run,
        seeds: batch::seeds,
    },
    Target {
        name: "session",
        run: session::run,
        seeds: session::seeds,
    },
    Target {
        name: "recovery",
        run: recovery::run,
        seeds: recovery::seeds,
    },
    Target {
        name: "stranger",
        run: stranger::run,
        seeds: stranger::seeds,
    },
    Target {
        name: "bundle",
        run: bundle::run,
        seeds: bundle::seeds,
    },
    Target {
        name: "tank",
        run: tank::run,
        seeds: tank::seeds,
    },
    Target {
        name: "seastar",
        run: seastar::run,
        seeds: seastar::seeds,
    },
    Target {
        name: "pravega",
        run: pravega::run,
        seeds: pravega::seeds,
    },
    Target {
        name: "controller",
        run: controller::run,
        seeds: controller::seeds,
    },
    #[cfg(feature = "names")]
    Target {
        name: "names",
        run: names::run,
        seeds: names::seeds,
    },
];
