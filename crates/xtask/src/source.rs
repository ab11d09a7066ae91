//! Rust source as far as the checks need it: lines of code without tests, comments and text.

/// The lines of `text` that are compiled into the library, each with its number from 1.
///
/// An inline module behind `#[cfg(test)]` is left out up to the brace at its own indentation; comments and the inside
/// of string literals are blanked. This is not a parser: raw strings with quotes and multi-line literals can mislead it,
/// in the direction of finding too much.
pub(crate) fn code_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut test_module: Option<&str> = None;
    let mut test_attribute = false;
    for (index, line) in text.lines().enumerate() {
        let indentation = line.split_at(line.len() - line.trim_start().len()).0;
        if let Some(end) = test_module {
            if line.trim_end() == format!("{end}}}") {
                test_module = None;
            }
            continue;
        }
        if line.trim() == "#[cfg(test)]" {
            test_attribute = true;
            continue;
        }
        if test_attribute && line.trim_start().starts_with("mod ") && line.trim_end().ends_with('{') {
            test_module = Some(indentation);
        } else {
            lines.push((index + 1, blank(line)));
        }
        test_attribute = false;
    }
    lines
}

/// The line without comments and without what stands in its string literals.
fn blank(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    let mut in_string = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => {
                characters.next();
            }
            '"' => {
                in_string = !in_string;
                code.push('"');
            }
            _ if in_string => {}
            // The quote as a character is no string's begin.
            '\'' if characters.peek() == Some(&'"') => {
                characters.next();
                code.push('\'');
            }
            '/' if characters.peek() == Some(&'/') => break,
            other => code.push(other),
        }
    }
    code
}

/// Whether `word` stands in `code` with no letter, digit or underscore on either side.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).any(|(at, found)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + found.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::{code_lines, has_word};

    #[test]
    fn tests_comments_and_text_do_not_count() {
        let text =
            "a(); // Instant::now\nlet s = \"unsafe \\\" {\"; b();\n#[cfg(test)]\nmod tests {\n    c();\n}\nd('\"');\n";
        let lines = code_lines(text);
        let expected = [(1, "a(); "), (2, "let s = \"\"; b();"), (7, "d('');")];
        let found: Vec<_> = lines.iter().map(|(number, code)| (*number, code.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_attribute_of_something_else_hides_nothing() {
        let lines = code_lines("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse a;\nb();\n");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { }", "unsafe"));
        assert!(!has_word("deny(unsafe_code)", "unsafe"));
        assert!(has_word("std::time::SystemTime::now()", "SystemTime"));
        assert!(!has_word("MySystemTime", "SystemTime"));
    }
}
