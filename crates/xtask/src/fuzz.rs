//! `cargo xtask fuzz`: builds the fuzz targets on the stable toolchain, seeds them, runs them for a while.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::workspace::{Failure, host, root, run};

/// The targets: binaries of `sbp-fuzz` without their `fuzz-`.
const TARGETS: [&str; 12] = [
    "frame",
    "message",
    "batch",
    "session",
    "recovery",
    "stranger",
    "bundle",
    "tank",
    "seastar",
    "pravega",
    "controller",
    "names",
];

/// Run when they are asked for by name: their builds take Arrow along, or the server, which is long for a smoke run.
const BY_NAME_ONLY: [&str; 2] = ["batch", NAMES];

/// A target that is a feature of the package too.
const NAMES: &str = "names";

/// What makes the compiler count the branches that an input takes. Other than `cargo fuzz`, nothing of this needs an
/// unstable option: the pass and the engine are part of every toolchain.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// What finds reads and writes outside of memory. An unstable option, so it is asked for by name.
const ADDRESSES: &str = " -Zsanitizer=address";

/// An input that takes longer than this, in seconds, is a finding.
const SLOW: u32 = 10;
/// So is one that takes more memory than this, in MiB.
const HEAVY: u32 = 1_024;

/// What is run, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each target runs, in seconds. Targets run side by side, one for each core.
    #[arg(long, default_value_t = 15)]
    seconds: u32,
    /// How many inputs each target is given, however long that takes.
    #[arg(long, conflicts_with = "seconds")]
    executions: Option<u32>,
    /// Run this target only; may be given several times.
    #[arg(long, value_parser = TARGETS)]
    target: Vec<String>,
    /// Where the engine's chance begins; 0 takes another one each time. The default makes runs alike.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Build with the address sanitizer too. Uses RUSTC_BOOTSTRAP, as stable toolchains do not offer it.
    #[arg(long)]
    addresses: bool,
    /// Build only.
    #[arg(long)]
    build_only: bool,
}

/// Builds, seeds, runs. Fails when a target found something; the input is kept, and the command to repeat it is told.
pub(crate) fn fuzz(arguments: &Arguments) -> Result<(), Failure> {
    let folder = root().join("target/fuzz");
    let binaries = build(arguments, &folder)?;
    if arguments.build_only {
        return Ok(());
    }
    let corpus = folder.join("corpus");
    let seeds = "run --locked --quiet --package sbp-fuzz --bin seeds --".split(' ');
    run(Command::new("cargo").current_dir(root()).args(seeds).arg(&corpus))?;
    let targets = wanted(arguments);
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let mut failures = Vec::new();
    for group in targets.chunks(at_once) {
        let outcomes = thread::scope(|scope| {
            let runs: Vec<_> = group
                .iter()
                .map(|name| scope.spawn(|| (*name, play(name, arguments, &binaries, &folder))))
                .collect();
            runs.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for outcome in outcomes {
            match outcome {
                Ok((name, Ok(said))) => println!("fuzz: {name}: {}", summary(&said)),
                Ok((name, Err(failure))) => failures.push(format!("{name}: {failure}")),
                Err(_) => failures.push("a thread of the fuzzer's driver panicked".to_owned()),
            }
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::Found(failures.join("\n\n")))
    }
}

/// The target that was asked for, or those that run when none was.
fn wanted(arguments: &Arguments) -> Vec<&'static str> {
    let is_wanted = |name: &&str| match arguments.target.as_slice() {
        [] => !BY_NAME_ONLY.contains(name),
        only => only.iter().any(|one| one == name),
    };
    TARGETS.into_iter().filter(is_wanted).collect()
}

/// Builds the targets into a folder of their own and returns where they are. Instrumented code must not meet other code,
/// and naming the platform keeps the instruments out of what runs while building.
fn build(arguments: &Arguments, folder: &Path) -> Result<PathBuf, Failure> {
    let host = host()?;
    let mut flags = COVERAGE.to_owned();
    let mut command = Command::new("cargo");
    if arguments.addresses {
        flags.push_str(ADDRESSES);
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    command
        .current_dir(root())
        .env("RUSTFLAGS", flags)
        .args("build --locked --quiet --profile fuzz --package sbp-fuzz".split(' '))
        .args(["--no-default-features", "--features"])
        .arg(if arguments.target.iter().any(|name| name == NAMES) {
            "libfuzzer,names"
        } else {
            "libfuzzer"
        })
        .args(["--target", &host, "--target-dir"])
        .arg(folder.join("build"));
    for target in wanted(arguments) {
        command.args(["--bin", &format!("fuzz-{target}")]);
    }
    run(&mut command)?;
    Ok(folder.join("build").join(host).join("fuzz"))
}

/// Runs one target and returns what it said.
fn play(name: &str, arguments: &Arguments, binaries: &Path, folder: &Path) -> Result<String, Failure> {
    let binary = binaries.join(format!("fuzz-{name}"));
    let kept = folder.join("found").join(name);
    std::fs::create_dir_all(&kept).map_err(Failure::file(&kept))?;
    let mut command = Command::new(&binary);
    let bound = match arguments.executions {
        Some(executions) => format!("-runs={executions}"),
        None => format!("-max_total_time={}", arguments.seconds),
    };
    command
        .arg(bound)
        .arg(format!("-seed={}", arguments.seed))
        .arg(format!("-timeout={SLOW}"))
        .arg(format!("-rss_limit_mb={HEAVY}"))
        .arg(format!("-artifact_prefix={}/", kept.display()))
        .args(["-print_final_stats=1", "-close_fd_mask=0"])
        .arg(folder.join("corpus").join(name));
    let output = command.output().map_err(|source| Failure::Run {
        program: binary.display().to_string(),
        source,
    })?;
    // The engine speaks on standard error, also when all is well.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(60)..].join("\n");
    Err(Failure::Found(format!(
        "{last}\nto repeat it: {} <the file named above>",
        binary.display()
    )))
}

/// What a run came to: executions, coverage, memory.
fn summary(said: &str) -> String {
    let stat = |name: &str| {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
        line.map_or("?", |rest| rest.trim_start_matches(':').trim())
    };
    let covered = said
        .lines()
        .rev()
        .find_map(|line| line.split(" cov: ").nth(1)?.split(' ').next());
    format!(
        "{} executions, {} a second, {} branches, {} MiB",
        stat("number_of_executed_units"),
        stat("average_exec_per_sec"),
        covered.unwrap_or("?"),
        stat("peak_rss_mb")
    )
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn a_runs_last_words_are_understood() {
        let said = "#7 INITED cov: 11 ft: 12 corp: 3/9b exec/s: 0\n#99\tDONE   cov: 21 ft: 30 corp: 4/9b\n\
            stat::number_of_executed_units: 99\nstat::average_exec_per_sec:     33\nstat::peak_rss_mb: 40\n";
        assert_eq!(summary(said), "99 executions, 33 a second, 21 branches, 40 MiB");
        assert_eq!(summary(""), "? executions, ? a second, ? branches, ? MiB");
    }
}
