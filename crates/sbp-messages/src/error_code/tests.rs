use crate::{ErrorCode, Retry};

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
