//! `cargo xtask sizes`: no source file that one does not read in a sitting, no function that one does not see at once.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::workspace::{Failure, files, parse, read, root, shown};

/// Lines that no file may exceed.
const MOST: usize = 800;

/// Lines that no function of Rust may exceed, tests apart, from its name to its last brace.
const MOST_OF_FUNCTION: usize = 80;

/// Directories with source files, and their extension.
const PLACES: [(&str, &str); 4] = [("crates", "rs"), ("tests", "rs"), ("python", "py"), ("tests", "py")];

/// Counts the lines of every source file that people write, and of every function in those of Rust that are no tests.
pub(crate) fn check() -> Result<(), Failure> {
    let mut sizes = Vec::new();
    let mut long = Vec::new();
    for (place, extension) in PLACES {
        for path in files(&root().join(place), extension)? {
            let name = shown(&path);
            if !name.contains("/src/generated/") {
                let text = read(&path)?;
                sizes.push((text.lines().count(), name));
                if extension == "rs" && !is_test(&path) {
                    long.extend(long_functions(&path, &text)?);
                }
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
    if over.is_empty() && long.is_empty() {
        return Ok(());
    }
    let list: Vec<_> = over
        .iter()
        .map(|(lines, name)| format!("\n  {name}: {lines} lines"))
        .collect();
    Err(Failure::Found(format!(
        "files over {MOST} lines, to be split by noun, or functions over {MOST_OF_FUNCTION}:{}{}",
        list.concat(),
        long.concat()
    )))
}

/// Whether a file holds tests: scenes are told from begin to end there.
fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// The functions of a file that are too long, each as a line of text.
fn long_functions(path: &Path, text: &str) -> Result<Vec<String>, Failure> {
    let mut functions = Functions(Vec::new());
    functions.visit_file(&parse(path, text)?);
    let long = functions.0.into_iter().filter(|(_, lines)| *lines > MOST_OF_FUNCTION);
    Ok(long
        .map(|(name, lines)| format!("\n  {}: fn {name} has {lines} lines", shown(path)))
        .collect())
}

/// The functions of a file, with their lines.
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line + 1 - signature.span().start().line;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::long_functions;

    #[test]
    fn functions_are_measured_wherever_they_are() {
        let text = |lines: usize| {
            let body = "    x();\n".repeat(lines - 2);
            format!("/// Text.\nfn a(\n) {{\n{body}}}\nmod m {{ impl T {{ fn b() {{\n{body}}}\n}} }}\n")
        };
        let long = |lines| long_functions(Path::new("x.rs"), &text(lines)).unwrap();
        assert_eq!(long(79), [""; 0]);
        assert_eq!(long(80), ["\n  x.rs: fn a has 81 lines"]);
        assert_eq!(long(81).len(), 2);
    }
}
