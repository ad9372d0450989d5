//! Texts that are all there, and texts that broke off.

use super::super::is_whole_json;
use proptest::prelude::*;

const ANSWER: &str = r#" {"a":[1,-Infinity,NaN,{"b":"}]\"\\"}],"c":"\u00e9","d":[[]]} "#;

#[test]
fn a_value_that_is_closed_is_whole() {
    for text in [
        ANSWER,
        "[]",
        "[1,2]\r\n",
        "{}",
        "\u{feff}{}",
        r#"["\\"]"#,
        r#" "a\"]" "#,
        r#""""#,
        "null",
        "true\n",
        "-0.5e3",
    ] {
        assert!(is_whole_json(text.as_bytes()), "{text}");
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(is_whole_json(&deep));
}

#[test]
fn every_beginning_of_a_text_is_not_whole() {
    let text = ANSWER.trim_ascii().as_bytes();
    for cut in 0..text.len() {
        assert!(!is_whole_json(&text[..cut]), "{cut}");
    }
}

#[test]
fn what_is_no_value_or_is_followed_by_more_is_not_whole() {
    for text in [
        "", " ", "nul", "\"a", "\"", "\"a\\\"", "oops", "{}{", "[] 1", "}", "][", "\"a\" 1", "1.",
        "-", "1 2",
    ] {
        assert!(!is_whole_json(text.as_bytes()), "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = is_whole_json(&bytes);
    }

    #[test]
    fn bracketed_noise_never_goes_wrong(text in r#"[\[{][\[\]{}"\\a ]{0,30}"#) {
        let _ = is_whole_json(text.as_bytes());
    }
}
