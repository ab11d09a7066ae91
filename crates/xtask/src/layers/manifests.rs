//! What the crates' manifests ask for.

use super::Violation;
use super::rules::{
    BOTH, CORE, EDGES, OTHER_PROTOCOLS, PURE, RESERVED, RUNTIMES, SBP, SYSTEM, TEST_CRATES, TEST_FEATURE, TEST_ONLY,
};
use crate::graph::{Graph, Package};

/// Checks edges, reserved libraries and what the core reaches.
pub(super) fn check(graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in graph.members() {
        edges(graph, package, &mut violations);
        reserved(package, &mut violations);
        protocols(graph, package, &mut violations);
        test_support(package, &mut violations);
        reach(graph, package, &mut violations);
    }
    violations
}

fn edges(graph: &Graph, package: &Package, violations: &mut Vec<Violation>) {
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
        let what = format!(
            "{} is in no rule: give it a row in xtask's table of edges",
            package.name
        );
        violations.push(Violation { rule: "L1", what });
        return;
    };
    for dependency in package.normal() {
        let ours = graph.members().any(|member| member.name == dependency.name);
        if ours && !allowed.split(' ').any(|name| name == dependency.name) {
            let what = format!("{} uses {}", package.name, dependency.name);
            violations.push(Violation {
                rule: edge_rule(&package.name, &dependency.name),
                what,
            });
        }
    }
}

/// The rule that an edge breaks, where one speaks of it by name.
fn edge_rule(from: &str, to: &str) -> &'static str {
    match (from, to) {
        ("sbp-frame", "sbp-messages" | "sbp-schema") => "L3",
        ("sbp-client", "sbp-server") | ("sbp-server", "sbp-client") => "L4",
        ("sbp-log", _) => "L5",
        (from, to) if OTHER_PROTOCOLS.contains(&from) && (SBP.contains(&to) || OTHER_PROTOCOLS.contains(&to)) => "L12",
        _ => "L1",
    }
}

/// Who knows SBP knows no other protocol, however deep.
fn protocols(graph: &Graph, package: &Package, violations: &mut Vec<Violation>) {
    if BOTH.contains(&package.name.as_str()) {
        return;
    }
    let closure = graph.closure(package);
    let known = |names: &[&'static str]| {
        let is_known = |name: &&&str| package.name == **name || closure.iter().any(|used| used.name == **name);
        names.iter().find(is_known).copied()
    };
    if let (Some(ours), Some(other)) = (known(&SBP), known(&OTHER_PROTOCOLS)) {
        let what = format!("{} reaches both {ours} and {other}", package.name);
        violations.push(Violation { rule: "L12", what });
    }
}

fn reserved(package: &Package, violations: &mut Vec<Violation>) {
    for (rule, library, allowed) in RESERVED {
        let uses = package.normal().any(|dependency| dependency.name == library);
        if uses && !allowed.contains(&package.name.as_str()) {
            violations.push(Violation {
                rule,
                what: format!("{} uses {library}", package.name),
            });
        }
    }
}

fn test_support(package: &Package, violations: &mut Vec<Violation>) {
    if TEST_CRATES.contains(&package.name.as_str()) {
        return;
    }
    for dependency in package.normal() {
        if TEST_ONLY.contains(&dependency.name.as_str()) {
            let what = format!("{} uses {} outside of tests", package.name, dependency.name);
            violations.push(Violation { rule: "L7", what });
        }
        if dependency.features.iter().any(|feature| feature == TEST_FEATURE) {
            let what = format!(
                "{} turns on {}'s test doubles outside of tests",
                package.name, dependency.name
            );
            violations.push(Violation { rule: "L7", what });
        }
    }
}

fn reach(graph: &Graph, package: &Package, violations: &mut Vec<Violation>) {
    if !CORE.contains(&package.name.as_str()) {
        return;
    }
    let closure: Vec<_> = graph.closure(package).iter().map(|used| used.name.as_str()).collect();
    let system = SYSTEM.iter().filter(|_| PURE.contains(&package.name.as_str()));
    for library in RUNTIMES
        .iter()
        .chain(system)
        .filter(|library| closure.contains(*library))
    {
        violations.push(Violation {
            rule: "L1",
            what: format!("{} reaches {library}", package.name),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Violation, check};
    use crate::graph::{Graph, sample};

    fn found(crates: &[(&str, &[&str])]) -> Vec<(&'static str, String)> {
        let graph: Graph = sample(crates);
        check(&graph)
            .into_iter()
            .map(|Violation { rule, what }| (rule, what))
            .collect()
    }

    #[test]
    fn allowed_edges_are_silent() {
        assert_eq!(
            found(&[
                ("sbp-frame", &["bytes"]),
                ("sbp-session", &["sbp-frame"]),
                ("bytes", &[])
            ]),
            []
        );
    }

    #[test]
    fn an_edge_against_the_direction_is_found() {
        let crates: &[(&str, &[&str])] = &[("sbp-client", &["sbp-server"]), ("sbp-server", &[])];
        assert_eq!(found(crates), [("L4", String::from("sbp-client uses sbp-server"))]);
        let crates: &[(&str, &[&str])] = &[("sbp-frame", &["sbp-messages"]), ("sbp-messages", &[])];
        assert_eq!(found(crates), [("L3", String::from("sbp-frame uses sbp-messages"))]);
    }

    #[test]
    fn protocols_do_not_meet() {
        let crates: &[(&str, &[&str])] = &[("sbp-tank", &["sbp-frame"]), ("sbp-frame", &[])];
        let expected = [
            "sbp-tank uses sbp-frame",
            "sbp-tank reaches both sbp-frame and sbp-tank",
        ];
        assert_eq!(found(crates), expected.map(|what| ("L12", String::from(what))));
        let crates: &[(&str, &[&str])] = &[
            ("sbp-server", &["sbp-transport"]),
            ("sbp-transport", &["helper"]),
            ("helper", &["sbp-tank"]),
            ("sbp-tank", &[]),
        ];
        let expected = "sbp-server reaches both sbp-server and sbp-tank";
        assert_eq!(found(crates), [("L12", String::from(expected))]);
    }

    #[test]
    fn a_runtime_is_found_behind_another_crate() {
        let crates: &[(&str, &[&str])] = &[("sbp-log", &["helper"]), ("helper", &["tokio"]), ("tokio", &[])];
        assert_eq!(found(crates), [("L1", String::from("sbp-log reaches tokio"))]);
    }

    #[test]
    fn reserved_libraries_and_unknown_crates_are_found() {
        let crates: &[(&str, &[&str])] = &[("sbp-server", &["flatbuffers", "proptest"]), ("sbp-new", &[])];
        let rules: Vec<_> = found(crates).into_iter().map(|(rule, _)| rule).collect();
        assert_eq!(rules, ["L2", "L7", "L1"]);
    }
}
