//! The dependency graph as `cargo metadata` tells it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::workspace::{Failure, host, root, run};

/// Everything that is built, and what uses what.
#[derive(Debug, Deserialize)]
pub(crate) struct Graph {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

/// One crate.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its licence, as an SPDX expression.
    pub(crate) license: Option<String>,
    /// Where its Cargo.toml is.
    pub(crate) manifest_path: PathBuf,
    /// What its Cargo.toml asks for.
    pub(crate) dependencies: Vec<Dependency>,
    /// Its own settings for programs that look at it; see [`Package::module_order`].
    #[serde(default)]
    pub(crate) metadata: serde_json::Value,
}

/// A line of a Cargo.toml.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The crate asked for.
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// The features asked for.
    pub(crate) features: Vec<String>,
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
    pub(crate) fn normal(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|dependency| dependency.kind.is_none())
    }

    /// Its modules from the lowest to the highest, as `[package.metadata.layers]` lists them.
    pub(crate) fn module_order(&self) -> Vec<String> {
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
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// All crates that end up in `package` when it is built for its users, itself included, by name and version.
    pub(crate) fn closure(&self, package: &Package) -> Vec<&Package> {
        let nodes: HashMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
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
        let mut found: Vec<_> = self
            .packages
            .iter()
            .filter(|package| seen.contains(package.id.as_str()))
            .collect();
        found.sort_by_key(|package| (&package.name, &package.version));
        found
    }
}

/// Asks cargo, for the machine this runs on: other machines' crates need not be downloaded.
pub(crate) fn load() -> Result<Graph, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let text = run(Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", &host()?])
        .current_dir(root()))?;
    Ok(serde_json::from_str(&text)?)
}

/// A graph of the given crates, each with its normal dependencies, for tests.
#[cfg(test)]
pub(crate) fn sample(crates: &[(&str, &[&str])]) -> Graph {
    let dependency = |name: &&str| Dependency {
        name: (*name).to_owned(),
        kind: None,
        features: Vec::new(),
    };
    let package = |(name, uses): &(&str, &[&str])| Package {
        id: (*name).to_owned(),
        name: (*name).to_owned(),
        version: String::new(),
        license: None,
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
