//! `cargo xtask sizes`: no source file that one does not read in a sitting.

use crate::workspace::{Failure, files, read, root, shown};

/// Lines that no file may exceed.
const MOST: usize = 800;

/// Directories with source files, and their extension.
const PLACES: [(&str, &str); 3] = [("crates", "rs"), ("python", "py"), ("tests", "py")];

/// Counts the lines of every source file that people write.
pub(crate) fn check() -> Result<(), Failure> {
    let mut sizes = Vec::new();
    for (place, extension) in PLACES {
        for path in files(&root().join(place), extension)? {
            let name = shown(&path);
            if !name.contains("/src/generated/") {
                sizes.push((read(&path)?.lines().count(), name));
            }
        }
    }
    sizes.sort();
    let at = |percent: usize| sizes.get(sizes.len() * percent / 100).map_or(0, |(lines, _)| *lines);
    println!(
        "sizes: {} files, median {} lines, 90th percentile {}, largest {}",
        sizes.len(),
        at(50),
        at(90),
        sizes.last().map_or(0, |(lines, _)| *lines)
    );
    let over: Vec<_> = sizes.iter().filter(|(lines, _)| *lines > MOST).collect();
    if over.is_empty() {
        return Ok(());
    }
    let list: Vec<_> = over
        .iter()
        .map(|(lines, name)| format!("\n  {name}: {lines} lines"))
        .collect();
    Err(Failure::Found(format!(
        "files over {MOST} lines; split them by noun:{}",
        list.concat()
    )))
}
