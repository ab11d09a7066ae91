//! `cargo xtask layers`: the directions of dependency, checked by a program.
//!
//! What crates depend on is asked of `cargo metadata`; what sources mention is searched for in the text.

mod manifests;
mod modules;
mod python;
mod rules;
mod sources;

use crate::graph;
use crate::workspace::Failure;

pub(crate) use rules::help;

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    /// The rule, as `rules::RULES` names it.
    rule: &'static str,
    /// Where, and what was found there.
    what: String,
}

/// Makes all checks and lists everything that they find.
pub(crate) fn check() -> Result<(), Failure> {
    let graph = graph::load()?;
    let mut violations = manifests::check(&graph);
    violations.extend(sources::check(&graph)?);
    let modules = modules::check(&graph)?;
    violations.extend(modules.violations);
    violations.extend(python::check()?);
    violations.sort();
    violations.dedup();
    if violations.is_empty() {
        println!(
            "layers: {} crates keep the rules; the modules of {} stand in their declared order",
            graph.members().count(),
            modules.in_order,
        );
        return Ok(());
    }
    let list: Vec<_> = violations
        .iter()
        .map(|found| format!("\n  {}: {}", found.rule, found.what))
        .collect();
    Err(Failure::Found(format!(
        "layer rules are broken (cargo xtask layers --help explains them):{}",
        list.concat()
    )))
}
