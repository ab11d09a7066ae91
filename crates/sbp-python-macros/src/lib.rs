//! What `help()` shows of a Python class, from the one place where it is written: the stub
//! `python/sbp_native/_native.pyi`.

use std::collections::HashMap;
use std::path::Path;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

const STUB: &str = "../../python/sbp_native/_native.pyi";

/// Gives a Python class, or its methods, the docstrings of the stub. It stands above `#[pyclass]` and `#[pymethods]`.
///
/// What has no docstring in the stub, and methods whose names begin with `_`, keep their comments.
///
/// # Panics
///
/// The stub cannot be read, or does not have the class.
#[proc_macro_attribute]
pub fn stub_docs(_: TokenStream, item: TokenStream) -> TokenStream {
    let path = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(STUB);
    let stub = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let keyword = tokens
        .iter()
        .position(|token| is_word(token, "struct") || is_word(token, "impl"));
    let keyword = keyword.expect("stub_docs is for a struct or an impl");
    let class = tokens[keyword + 1].to_string();
    let docstrings = docstrings(&stub, &class).unwrap_or_else(|| panic!("{} has no class {class}", path.display()));
    if is_word(&tokens[keyword], "struct") {
        return doc(docstrings.get("")).into_iter().chain(tokens).collect();
    }
    if let Some(TokenTree::Group(body)) = tokens.pop() {
        let methods = documented_methods(body.stream(), &docstrings);
        tokens.push(Group::new(Delimiter::Brace, methods).into());
    }
    tokens.into_iter().collect()
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

/// The methods of an `impl`, each behind its docstring.
fn documented_methods(body: TokenStream, docstrings: &HashMap<&str, String>) -> TokenStream {
    let mut documented = TokenStream::new();
    let (mut method, mut name) = (Vec::new(), None);
    for token in body {
        if name.is_none() && method.last().is_some_and(|last| is_word(last, "fn")) {
            name = Some(token.to_string());
        }
        let is_body = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        method.push(token);
        if is_body {
            let name = name.take().filter(|name| !name.starts_with('_'));
            documented.extend(doc(name.and_then(|name| docstrings.get(&*name))));
            documented.extend(method.drain(..));
        }
    }
    documented.extend(method);
    documented
}

/// The attribute for a docstring.
fn doc(docstring: Option<&String>) -> TokenStream {
    docstring
        .map(|text| {
            format!("#[doc = {text:?}]")
                .parse()
                .expect("a text with its quotes is a literal")
        })
        .unwrap_or_default()
}

/// The docstrings of a class: its own without a name, those of its members by theirs. `None` without the class.
fn docstrings<'a>(stub: &'a str, class: &str) -> Option<HashMap<&'a str, String>> {
    let named = |line: &str| {
        line.strip_prefix("class ")?
            .strip_prefix(class)?
            .starts_with([':', '('])
            .then_some(())
    };
    let mut lines = stub.lines().skip_while(|line| named(line).is_none());
    lines.next()?;
    let mut lines = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let mut found = HashMap::new();
    let (mut member, mut indent) = ("", 4);
    while let Some(line) = lines.next() {
        if let Some((name, _)) = line
            .strip_prefix("    def ")
            .and_then(|definition| definition.split_once('('))
        {
            (member, indent) = (name, 8);
        }
        let Some(first) = line.trim_start().strip_prefix("\"\"\"") else {
            continue;
        };
        let mut text = first.to_owned();
        while !text.ends_with("\"\"\"") {
            text.push('\n');
            text.push_str(
                lines
                    .next()
                    .expect("a docstring ends")
                    .get(indent..)
                    .unwrap_or_default(),
            );
        }
        text.truncate(text.trim_end_matches("\"\"\"").trim_end().len());
        found.insert(member, text);
    }
    Some(found)
}
