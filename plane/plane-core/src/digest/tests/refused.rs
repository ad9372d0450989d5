//! Bodies that get a 400, with the kind and the byte. Source: field-cases.md O-12.

use super::{DigestErrorKind as Kind, refusal, refusal_kind};
use crate::digest::{DEPTH_MAX, MEMBERS_MAX, digest};

fn assert_refused(body: impl AsRef<[u8]>, kind: Kind, offset: usize) {
    let error = refusal(body);
    assert_eq!((error.kind, error.offset), (kind, offset));
}

#[test]
fn an_empty_body_is_refused() {
    assert_refused("", Kind::Empty, 0);
    assert_refused(" \r\n\t", Kind::Empty, 4);
}

#[test]
fn a_body_that_ends_early_is_refused_where_it_ends() {
    assert_refused("{", Kind::Truncated, 1);
    let body = r#"{"model":"m","messages":[{"content":"h"#;
    for end in 1..body.len() {
        let error = refusal(&body[..end]);
        assert_eq!(error.kind, Kind::Truncated, "{}", &body[..end]);
        assert_eq!(error.offset, end);
    }
}

#[test]
fn a_top_level_that_is_not_an_object_is_refused() {
    for body in ["[]", r#""x""#, "null", "1", "true", "1e999", "hello"] {
        assert_refused(body, Kind::NotAnObject, 0);
    }
    assert_refused("  []", Kind::NotAnObject, 2);
}

#[test]
fn numbers_that_json_does_not_have_are_refused_wherever_they_stand() {
    assert_refused("NaN", Kind::NonFiniteNumber, 0);
    assert_refused(r#"{"max_tokens":NaN}"#, Kind::NonFiniteNumber, 14);
    for body in [
        r#"{"temperature":NaN}"#,
        r#"{"temperature":Infinity}"#,
        r#"{"temperature":-Infinity}"#,
        r#"{"n":-Infinity}"#,
        r#"{"tools":[{"x":[NaN]}]}"#,
    ] {
        assert_eq!(refusal_kind(body), Kind::NonFiniteNumber, "{body}");
    }
}

#[test]
fn a_number_beyond_every_double_is_refused() {
    assert!(matches!(
        refusal_kind(r#"{"temperature":1e999}"#),
        Kind::Syntax(_)
    ));
    let long = format!(r#"{{"seed":{}}}"#, "9".repeat(5000));
    assert!(matches!(refusal_kind(long), Kind::Syntax(_)));
}

#[test]
fn bytes_after_the_object_are_refused_but_white_space_is_not() {
    assert_refused(r#"{"model":"m"} trailing"#, Kind::TrailingBytes, 14);
    assert_refused(r#"{"model":"m"}{}"#, Kind::TrailingBytes, 13);
    assert_refused("{}\0", Kind::TrailingBytes, 2);
    assert!(digest(b"{\"model\":\"m\"} \r\n\t").is_ok());
}

#[test]
fn a_byte_order_mark_is_refused() {
    assert_refused("\u{feff}{}", Kind::ByteOrderMark, 0);
}

#[test]
fn bytes_that_are_not_utf8_are_refused_where_they_stand() {
    assert_refused(b"{\"model\":\"\xff\"}", Kind::InvalidUtf8, 10);
    assert_refused(b"{\"a\":\"\xc3\"}", Kind::InvalidUtf8, 6);
    assert_refused(b"{\"model\":\"\xed\xa0\x80\"}", Kind::InvalidUtf8, 10);
    assert_refused(b"\x1f\x8b\x08", Kind::InvalidUtf8, 1);
}

#[test]
fn half_of_a_surrogate_pair_is_refused() {
    for body in [
        r#"{"model":"\ud800"}"#,
        r#"{"model":"\udc00x"}"#,
        r#"{"model":"\ud800\ud800"}"#,
        r#"{"model":"\ud800\n"}"#,
        r#"{"messages":[{"content":"\ud83d"}]}"#,
        r#"{"tools":["\ud83d"]}"#,
        r#"{"\ud83d":1}"#,
    ] {
        assert_eq!(refusal_kind(body), Kind::BadUnicodeEscape, "{body}");
    }
    assert!(digest(br#"{"model":"\ud83d\ude00"}"#).is_ok());
}

#[test]
fn a_member_that_appears_twice_is_refused_also_when_spelled_with_escapes() {
    let duplicate = |name: &str| Kind::DuplicateMember(name.to_owned());
    assert_eq!(
        refusal_kind(r#"{"model":"a","model":"b"}"#),
        duplicate("model")
    );
    assert_eq!(
        refusal_kind(r#"{"model":"a","mod\u0065l":"b"}"#),
        duplicate("model")
    );
    assert_eq!(refusal_kind(r#"{"x":1,"y":2,"x":1}"#), duplicate("x"));
    let long = "k".repeat(100);
    assert_eq!(
        refusal_kind(format!(r#"{{"{long}":1,"{long}":2}}"#)),
        duplicate(&"k".repeat(64))
    );
}

#[test]
fn nesting_is_accepted_up_to_its_bound_and_refused_beyond() {
    let deep = |member: &str, levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"{member}":{open}{close}}}"#)
    };
    let levels_below = DEPTH_MAX as usize - 1;
    for member in ["x", "tools", "messages", "system", "input", "prompt"] {
        assert!(
            digest(deep(member, levels_below).as_bytes()).is_ok(),
            "{member}"
        );
        for levels in [levels_below + 1, 9_000, 200_000] {
            assert_eq!(
                refusal_kind(deep(member, levels)),
                Kind::TooDeep,
                "{member}"
            );
        }
    }
    for member in ["x", "tools"] {
        let offset = refusal(deep(member, 9_000)).offset;
        assert!(
            offset.abs_diff(4 + member.len() + levels_below) <= 1,
            "{offset}"
        );
    }
    let unclosed = format!(r#"{{"x":{}"#, "[{\"a\":".repeat(100_000));
    assert_eq!(refusal_kind(unclosed), Kind::TooDeep);
}

#[test]
fn the_number_of_members_is_bounded() {
    let body = |members: usize| {
        let members: Vec<_> = (0..members).map(|i| format!("\"{i}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert!(digest(body(MEMBERS_MAX).as_bytes()).is_ok());
    assert_eq!(refusal_kind(body(MEMBERS_MAX + 1)), Kind::TooManyMembers);
}

#[test]
fn a_model_that_is_not_a_string_is_refused() {
    for value in [
        "5",
        "-5",
        "1.5",
        "true",
        r#"["a"]"#,
        r#"{"a":1}"#,
        "18446744073709551615",
    ] {
        let kind = refusal_kind(format!(r#"{{"model":{value}}}"#));
        assert_eq!(kind, Kind::WrongType { field: "model" }, "{value}");
        assert_eq!(kind.field(), Some("model"));
    }
}

#[test]
fn a_stream_that_is_not_a_boolean_is_refused() {
    for value in [r#""true""#, "1", "0", "[]", "{}"] {
        let kind = refusal_kind(format!(r#"{{"stream":{value}}}"#));
        assert_eq!(kind, Kind::WrongType { field: "stream" }, "{value}");
    }
}

#[test]
fn a_limit_that_is_not_a_whole_number_of_64_bits_is_refused() {
    for field in [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "n",
    ] {
        for value in [
            "1.5",
            "1e30",
            "9223372036854775808",
            "-9223372036854775809",
            "1e999",
            "99999999999999999999",
            "9.3e18",
            "0.99999999999999994",
        ] {
            let kind = refusal_kind(format!(r#"{{"{field}":{value}}}"#));
            assert_eq!(kind, Kind::NotAnInteger { field }, "{value}");
        }
        for value in [r#""10""#, "true", "[]", "{}"] {
            let kind = refusal_kind(format!(r#"{{"{field}":{value}}}"#));
            assert_eq!(kind, Kind::WrongType { field }, "{value}");
        }
    }
}

#[test]
fn a_breach_of_the_grammar_is_refused_where_it_stands() {
    for (body, offset) in [
        ("{bad", 1),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        (r#"{"a":01}"#, 6),
        ("{\n\"a\":\n tru}", 11),
        (r#"{'a':1}"#, 1),
        ("{\"a\":\"\n\"}", 6),
        (r#"{"a":"\x"}"#, 7),
        (r#"{"a":1 "b":2}"#, 7),
        (r#"{"tools":[1,]}"#, 12),
    ] {
        let error = refusal(body);
        assert!(matches!(error.kind, Kind::Syntax(_)), "{body}: {error:?}");
        assert!(error.offset.abs_diff(offset) <= 1, "{body}: {error:?}");
    }
}

#[test]
fn an_error_says_what_to_do_and_quotes_no_text_of_the_body() {
    let error = refusal(r#"{"messages":"secret words","stream":"yes please"}"#);
    assert_eq!(
        error.to_string(),
        "stream has the wrong type; send true or false"
    );
    assert_eq!(error.kind.name(), "wrong_type");
    let error = refusal(r#"{"messages":"secret words" oops}"#);
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_member_that_is_ours_but_for_its_case_is_refused() {
    for (name, field) in [
        ("Model", "model"),
        ("STREAM", "stream"),
        ("\u{17f}tream", "stream"),
        ("\\u017ftream", "stream"),
        ("me\u{17f}\u{17f}ages", "messages"),
        ("max_to\u{212a}ens", "max_tokens"),
        ("Max_Output_Tokens", "max_output_tokens"),
        ("N", "n"),
    ] {
        let body = format!(r#"{{"model":"m","{name}":true}}"#);
        let error = refusal(&body);
        assert_eq!(error.kind.field(), Some(field), "{name}");
        assert!(matches!(error.kind, Kind::Lookalike { .. }), "{name}");
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn other_members_pass_whatever_their_case_and_so_do_ours_deeper_down() {
    for body in [
        r#"{"Models":1,"mode":2,"streams":3,"\u0131nput":4,"\u0130nput":5}"#,
        r#"{"metadata":{"Model":1,"Stream":2},"Temperature":1,"temperature":1}"#,
    ] {
        assert!(digest(body.as_bytes()).is_ok(), "{body}");
    }
}
