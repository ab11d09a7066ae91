//! What the modules of a crate use of each other.
//!
//! Imports and paths are read by a parser. A path is followed through re-exports to the module whose file defines what
//! it names, as far as that can be told without the compiler: names that a glob import brings are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Violation;
use super::sources::library_files;
use crate::graph::{Graph, Package};
use crate::workspace::{Failure, parse, read};

/// A module by its path inside the crate; the crate's root is empty.
type Module = Vec<String>;

/// One crate's modules: what each names, and what each mentions.
#[derive(Debug, Default)]
struct Crate {
    /// For each module, what its imports call what.
    names: BTreeMap<Module, BTreeMap<String, Module>>,
    /// For each module, the paths that stand in its code, from the crate's root.
    mentions: BTreeMap<Module, BTreeSet<Module>>,
}

/// What was found, and how many crates have several modules.
pub(super) struct Found {
    pub(super) violations: Vec<Violation>,
    pub(super) in_order: usize,
}

/// Judges every crate of several modules: they stand in a declared order, each uses those below it alone, and no modules
/// use each other in a circle.
pub(super) fn check(graph: &Graph) -> Result<Found, Failure> {
    let mut all = Found {
        violations: Vec::new(),
        in_order: 0,
    };
    for package in graph.members() {
        let directory = package.manifest_path.parent().unwrap_or(Path::new(""));
        let source = directory.join("src");
        let mut found = Crate::default();
        let programs = source.join("bin");
        for path in library_files(directory)?
            .into_iter()
            .filter(|path| !path.starts_with(&programs))
        {
            let module = module_of(path.strip_prefix(&source).unwrap_or(&path));
            found.add(module, &parse(&path, &read(&path)?)?);
        }
        if package.module_order().is_empty() && found.rooms().len() <= 1 {
            continue;
        }
        all.in_order += 1;
        let edges = found.edges();
        let report = |what| Violation {
            rule: "L11",
            what: format!("{}: {what}", package.name),
        };
        let found = judge_order(package, &found.rooms(), &edges).into_iter().map(report);
        all.violations.extend(found);
        all.violations.extend(circles(&edges).into_iter().map(report));
    }
    Ok(all)
}

/// The module that a file of `src` holds.
fn module_of(path: &Path) -> Module {
    let path = path.with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module
        .last()
        .is_some_and(|last| matches!(last.as_str(), "lib" | "main" | "mod"))
    {
        module.pop();
    }
    module
}

impl Crate {
    fn add(&mut self, module: Module, file: &syn::File) {
        let mut reading = Reading {
            module: module.clone(),
            names: BTreeMap::new(),
            mentions: BTreeSet::new(),
        };
        reading.visit_file(file);
        self.names.entry(module.clone()).or_default().extend(reading.names);
        self.mentions.entry(module).or_default().extend(reading.mentions);
    }

    /// The modules right below the crate's root.
    fn rooms(&self) -> BTreeSet<String> {
        self.mentions
            .keys()
            .filter_map(|module| module.first().cloned())
            .collect()
    }

    /// Which module uses which.
    fn edges(&self) -> BTreeSet<(Module, Module)> {
        let mut edges = BTreeSet::new();
        for (module, mentions) in &self.mentions {
            let used = mentions.iter().map(|path| self.home(path));
            edges.extend(used.filter(|used| used != module).map(|used| (module.clone(), used)));
        }
        edges
    }

    /// The module that defines what a path names.
    fn home(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        // Re-exports that lead in a circle do not compile; the bound is for what is misread.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|depth| self.is_module(path.get(..*depth)));
            let depth = depth.unwrap_or(0);
            let (module, rest) = path.split_at(depth);
            let aliased = rest.first().and_then(|name| self.names.get(module)?.get(name));
            match aliased {
                Some(target) => path = target.iter().chain(rest.iter().skip(1)).cloned().collect(),
                None => return module.to_vec(),
            }
        }
        path
    }

    fn is_module(&self, path: Option<&[String]>) -> bool {
        path.is_some_and(|path| self.mentions.contains_key(path))
    }
}

/// Reads one file.
struct Reading {
    module: Module,
    names: BTreeMap<String, Module>,
    mentions: BTreeSet<Module>,
}

impl Reading {
    /// A path that begins at this crate, from the crate's root; `None`: it begins at another crate, or is a local name.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.split_first()? {
            (first, others) if first == "crate" => {
                base.clear();
                rest = others;
            }
            (first, others) if first == "self" => rest = others,
            (first, _) if first == "super" => {
                while let [first, others @ ..] = rest
                    && first == "super"
                {
                    base.pop();
                    rest = others;
                }
            }
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        let path = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(inner) => self.import(&inner.tree, &path(&inner.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, before)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let called = before.last().cloned().unwrap_or_default();
                self.name(called, before);
            }
            syn::UseTree::Name(name) => self.name(name.ident.to_string(), &path(&name.ident)),
            syn::UseTree::Rename(rename) => self.name(rename.rename.to_string(), &path(&rename.ident)),
            syn::UseTree::Glob(_) => self.mentions.extend(self.absolute(before)),
        }
    }

    fn name(&mut self, called: String, path: &[String]) {
        if let Some(target) = self.absolute(path) {
            self.mentions.insert(target.clone());
            self.names.insert(called, target);
        } else if let Some(first) = path.first() {
            // `use fetch::Fetched;` beside `mod fetch;`: judged when modules are known, and harmless if it is a crate.
            let mut target = self.module.clone();
            target.extend(path.iter().cloned());
            if first != &called {
                self.names.insert(called, target);
            }
        }
    }

    /// Paths in what a macro is given, which is not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Punct(colon) if colon.as_char() == ':' => continue,
                other => {
                    self.mentions.extend(self.absolute(&path));
                    path.clear();
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.mentions.extend(self.absolute(&path));
    }
}

impl<'ast> Visit<'ast> for Reading {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.mentions.extend(self.absolute(&parts));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is compiled for tests alone.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The rules that the declared order of a crate's modules sets.
fn judge_order(package: &Package, rooms: &BTreeSet<String>, edges: &BTreeSet<(Module, Module)>) -> Vec<String> {
    let order = package.module_order();
    let place = |room: &str| order.iter().position(|listed| listed == room);
    let mut found: Vec<_> = rooms
        .iter()
        .filter(|room| place(room).is_none())
        .map(|room| format!("module {room} has no place in [package.metadata.layers] of Cargo.toml"))
        .collect();
    let gone = order.iter().filter(|listed| !rooms.contains(*listed));
    found.extend(gone.map(|listed| format!("[package.metadata.layers] names {listed}, which is no module")));
    for (from, to) in edges {
        let (Some(above), Some(below)) = (from.first(), to.first()) else {
            // The crate's root names every module, and what it defines itself is below all of them.
            continue;
        };
        if let (Some(above_at), Some(below_at)) = (place(above), place(below))
            && above_at < below_at
        {
            let (from, to) = (from.join("::"), to.join("::"));
            found.push(format!("{from} uses {to}, but {below} stands above {above}"));
        }
    }
    found
}

/// Modules beside each other that use each other in a circle. A module and those inside it may, which is one room.
fn circles(edges: &BTreeSet<(Module, Module)>) -> Vec<String> {
    let mut beside: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, to) in edges {
        let shared = from.iter().zip(to).take_while(|(one, other)| one == other).count();
        if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
            let parent = from.get(..shared).unwrap_or_default().to_vec();
            let uses = beside.entry(parent).or_default();
            uses.entry(one.clone()).or_default().insert(other.clone());
        }
    }
    let mut found = Vec::new();
    for (parent, uses) in &beside {
        let mut left: BTreeMap<&String, BTreeSet<&String>> =
            uses.iter().map(|(from, to)| (from, to.iter().collect())).collect();
        // Take away what leads nowhere, and what nothing leads to, until only circles and what joins them are left.
        loop {
            let before = left.len();
            let used: BTreeSet<_> = left.values().flatten().copied().collect();
            left.retain(|from, _| used.contains(from));
            let present: BTreeSet<_> = left.keys().copied().collect();
            left.values_mut().for_each(|to| to.retain(|to| present.contains(to)));
            left.retain(|_, to| !to.is_empty());
            if left.len() == before {
                break;
            }
        }
        if !left.is_empty() {
            let names: Vec<_> = left.keys().map(|name| name.as_str()).collect();
            let inside = if parent.is_empty() {
                String::new()
            } else {
                format!(" of {}", parent.join("::"))
            };
            found.push(format!(
                "the modules {}{inside} use each other in a circle",
                names.join(", ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Crate, circles, judge_order, module_of};
    use crate::graph::{Package, sample};
    use std::path::Path;

    fn sources(files: &[(&str, &str)]) -> Crate {
        let mut found = Crate::default();
        for (path, text) in files {
            found.add(module_of(Path::new(path)), &syn::parse_file(text).unwrap());
        }
        found
    }

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let edges = sources(files).edges();
        edges
            .iter()
            .map(|(from, to)| format!("{} -> {}", from.join("::"), to.join("::")))
            .collect()
    }

    fn package(order: &[&str]) -> Package {
        let mut package = sample(&[("sbp-x", &[])]).members().next().unwrap().clone();
        package.metadata = serde_json::json!({ "layers": { "modules": order } });
        package
    }

    #[test]
    fn every_kind_of_mention_is_found() {
        for text in [
            "use crate::b::Thing;",
            "use crate::{b::{self, Thing}, other};",
            "use super::b::Thing as Other;",
            "pub use crate::b::*;",
            "fn f() -> super::b::Thing { todo!() }",
            "fn f() { log!(\"{}\", crate::b::thing()); }",
            "impl crate::b::Thing { fn f() {} }",
            "use crate::Thing;",
            "use super::Thing;",
        ] {
            let root = "mod a; mod b; pub use b::Thing;";
            let root = [("lib.rs", root), ("a.rs", text), ("b.rs", "pub struct Thing;")];
            assert_eq!(uses(&root).iter().filter(|edge| *edge == "a -> b").count(), 1, "{text}");
        }
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let text =
            "#[cfg(test)] use crate::b::X; #[cfg(test)] mod t { use crate::b::Y; } use std::b::Z; use b_crate::b;";
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "")];
        assert_eq!(uses(&files), [""; 0]);
    }

    #[test]
    fn a_planted_upward_import_is_found() {
        let files = |low| {
            [
                ("lib.rs", ""),
                ("low.rs", low),
                ("high/mod.rs", "use crate::low::X;"),
                ("high/in.rs", ""),
            ]
        };
        let package = package(&["low", "high"]);
        let judge = |low| {
            let found = sources(&files(low));
            judge_order(&package, &found.rooms(), &found.edges())
        };
        assert_eq!(judge("fn f() {}"), [""; 0]);
        assert_eq!(
            judge("use crate::high::r#in::Y;").len() + judge("use crate::high::Y;").len(),
            2
        );
        assert_eq!(
            judge("use crate::high::Y;"),
            ["low uses high, but high stands above low"]
        );
    }

    #[test]
    fn every_module_has_a_place() {
        let found = sources(&[("lib.rs", ""), ("a.rs", ""), ("b.rs", "")]);
        let without = judge_order(&package(&[]), &found.rooms(), &found.edges());
        assert_eq!(without.len(), 2, "{without:?}");
        let found = judge_order(&package(&["a", "c"]), &found.rooms(), &found.edges());
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("module b has no place"), "{found:?}");
        assert!(found[1].contains("names c, which is no module"), "{found:?}");
    }

    #[test]
    fn circles_are_found_at_every_depth_but_not_between_a_module_and_its_own() {
        let one_room = [
            ("r/mod.rs", "use self::a::X;"),
            ("r/a.rs", "use super::Y;"),
            ("lib.rs", ""),
        ];
        assert_eq!(circles(&sources(&one_room).edges()), [""; 0]);
        let inside = [
            ("lib.rs", ""),
            ("r/mod.rs", ""),
            ("r/a.rs", "use super::b::B;"),
            ("r/b.rs", "use super::c::C;"),
            ("r/c.rs", "use crate::r::a::A;"),
            ("r/d.rs", "use crate::r::a::A;"),
        ];
        assert_eq!(
            circles(&sources(&inside).edges()),
            ["the modules a, b, c of r use each other in a circle"]
        );
    }
}
