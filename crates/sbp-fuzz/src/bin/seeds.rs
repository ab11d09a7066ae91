//! Writes the seeds of every target: `seeds FOLDER` makes `FOLDER/<target>/<number>`.

#![allow(clippy::print_stdout, reason = "a command-line tool speaks on its terminal")]

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: seeds FOLDER"))?;
    for target in sbp_fuzz::TARGETS {
        let own = folder.join(target.name);
        fs::create_dir_all(&own)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(own.join(format!("seed-{number:03}")), seed)?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}
