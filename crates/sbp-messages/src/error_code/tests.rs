use std::collections::HashMap;

use crate::{ErrorCode, PYTHON_CLASSES, Retry};

#[test]
fn every_class_is_in_the_tree_and_every_parent_comes_first() {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for class in PYTHON_CLASSES {
        assert!(
            class.base.is_empty() || seen.contains_key(class.base),
            "{} precedes its base",
            class.name
        );
        assert!(seen.insert(class.name, class.base).is_none(), "{} twice", class.name);
    }
    for code in ErrorCode::ALL {
        assert!(
            seen.contains_key(code.rule().python_class),
            "{code} names a class that is not in the tree"
        );
    }
}

#[test]
fn the_half_of_the_tree_agrees_with_the_side_effects() {
    let base: HashMap<&str, &str> = PYTHON_CLASSES.iter().map(|class| (class.name, class.base)).collect();
    let descends = |mut class: &str, from: &str| loop {
        if class == from {
            return true;
        }
        match base.get(class) {
            Some(&parent) if !parent.is_empty() => class = parent,
            _ => return false,
        }
    };
    for code in ErrorCode::ALL.iter().filter(|code| !code.is_success()) {
        let rule = code.rule();
        let half = if rule.may_have_been_done {
            "IndeterminateError"
        } else {
            "RejectedError"
        };
        assert!(
            descends(rule.python_class, half),
            "{code}: {} is no {half}",
            rule.python_class
        );
    }
}

#[test]
fn every_class_that_is_a_leaf_has_a_code() {
    for class in PYTHON_CLASSES {
        let leaf = PYTHON_CLASSES.iter().all(|other| other.base != class.name);
        let used = ErrorCode::ALL.iter().any(|code| code.rule().python_class == class.name);
        assert!(used || !leaf, "{} is never raised", class.name);
    }
}

#[test]
fn numbers_rise_and_meaning_and_advice_are_sentences() {
    assert!(ErrorCode::ALL.is_sorted_by(|a, b| a.0 < b.0));
    for code in ErrorCode::ALL {
        for text in [code.rule().meaning, code.rule().advice] {
            assert!(text.len() >= 7, "{code}");
            assert!(!text.ends_with('.'), "{code}: the caller ends the sentence");
        }
        assert_ne!(code.rule().meaning, code.rule().advice, "{code}");
    }
}

#[test]
fn every_code_of_the_schema_that_is_kept_has_the_schemas_name() {
    for number in i16::MIN..=i16::MAX {
        let code = ErrorCode::from_wire(number);
        let Some(name) = sbp_schema::v01::ErrorCode(number).variant_name() else {
            continue;
        };
        if code.0 == number {
            let expected = code.rule().name;
            assert_eq!(name, expected);
        } else {
            assert!(ErrorCode::ALL.contains(&code), "{name} is read as {code}");
        }
    }
}

#[test]
fn a_number_without_a_row_promises_nothing() {
    let rule = ErrorCode(4711).rule();
    assert_eq!(rule.retry, Retry::Never);
    assert!(rule.may_have_been_done);
    assert_eq!(ErrorCode(4711).to_string(), "UNKNOWN_CODE (4711)");
}

#[test]
fn foreign_words_are_read_as_ours() {
    assert!(ErrorCode::from_wire(1200).is_success());
    assert!(ErrorCode::from_wire(1204).is_success());
    assert_eq!(ErrorCode::from_wire(1400), ErrorCode::INVALID_REQUEST);
    assert_eq!(ErrorCode::from_wire(1503), ErrorCode::PD_NOT_LEADER);
}
