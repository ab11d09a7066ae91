//! The dependency graph as `cargo metadata` tells it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::workspace::{Failure, host, root, run};

/// Everything that is built, and what uses what.
#[derive(Debug, Deserialize)]
pub(super) struct Graph {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

/// One crate.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Package {
    id: String,
    /// Its name.
    pub(super) name: String,
    /// Where its Cargo.toml is.
    pub(super) manifest_path: PathBuf,
    /// What its Cargo.toml asks for.
    pub(super) dependencies: Vec<Dependency>,
    /// Its own settings for programs that look at it; see [`Package::module_order`].
    #[serde(default)]
    pub(super) metadata: serde_json::Value,
}

/// A line of a Cargo.toml.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Dependency {
    /// The crate asked for.
    pub(super) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(super) kind: Option<String>,
    /// The features asked for.
    pub(super) features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

impl Package {
    /// What it uses when it is built for its users.
    pub(super) fn normal(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|dependency| dependency.kind.is_none())
    }

    /// Its modules from the lowest to the highest, as `[package.metadata.layers]` lists them.
    pub(super) fn module_order(&self) -> Vec<String> {
        let listed = self
            .metadata
            .pointer("/layers/modules")
            .and_then(|list| list.as_array());
        let names = listed.into_iter().flatten().filter_map(|name| name.as_str());
        names.map(str::to_owned).collect()
    }
}

impl Graph {
    /// The crates of this workspace.
    pub(super) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The names of all crates that end up in `package` when it is built for its users, itself included.
    pub(super) fn closure(&self, package: &Package) -> BTreeSet<&str> {
        let nodes: HashMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let names: HashMap<&str, &str> = self
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package.name.as_str()))
            .collect();
        let mut seen = BTreeSet::new();
        let mut pending = vec![package.id.as_str()];
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            let edges = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let normal = edges.filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            pending.extend(normal.map(|edge| edge.pkg.as_str()));
        }
        seen.iter().filter_map(|id| names.get(id).copied()).collect()
    }
}

/// Asks cargo, for the machine this runs on: other machines' crates need not be downloaded.
pub(super) fn load() -> Result<Graph, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let text = run(Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", &host()?])
        .current_dir(root()))?;
    Ok(serde_json::from_str(&text)?)
}

/// A graph of the given crates, each with its normal dependencies, for tests.
#[cfg(test)]
pub(super) fn sample(crates: &[(&str, &[&str])]) -> Graph {
    let dependency = |name: &&str| Dependency {
        name: (*name).to_owned(),
        kind: None,
        features: Vec::new(),
    };
    let package = |(name, uses): &(&str, &[&str])| Package {
        id: (*name).to_owned(),
        name: (*name).to_owned(),
        manifest_path: PathBuf::new(),
        dependencies: uses.iter().map(dependency).collect(),
        metadata: serde_json::Value::Null,
    };
    let edge = |name: &&str| Edge {
        pkg: (*name).to_owned(),
        dep_kinds: vec![EdgeKind { kind: None }],
    };
    let node = |(name, uses): &(&str, &[&str])| Node {
        id: (*name).to_owned(),
        deps: uses.iter().map(edge).collect(),
    };
    Graph {
        packages: crates.iter().map(package).collect(),
        workspace_members: crates
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .filter(|name| name.starts_with("sbp-"))
            .collect(),
        resolve: Resolve {
            nodes: crates.iter().map(node).collect(),
        },
    }
}
