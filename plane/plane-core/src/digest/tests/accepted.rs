//! What is read off a body that passes. Source: http-api.md §3.1, decisions.md 35, field-cases.md O-12.

use super::read;
use crate::digest::{ModelKind, sha256, sha256_hex};

fn text_bytes(body: &str) -> u64 {
    read(body).text_bytes
}

#[test]
fn an_ordinary_request_is_read() {
    let digest = read(
        r#"{"model":"org/name:7b","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#,
    );
    assert_eq!(digest.model.as_deref(), Some("org/name:7b"));
    assert_eq!(digest.model_kind, ModelKind::String);
    assert_eq!(digest.stream, Some(true));
    assert_eq!(digest.max_tokens, Some(5));
    assert_eq!(
        (digest.text_bytes, digest.messages, digest.images),
        (2, 1, 0)
    );
}

#[test]
fn null_counts_as_absent_for_every_member() {
    let digest = read(
        r#"{"model":null,"stream":null,"max_tokens":null,"max_completion_tokens":null,
            "max_output_tokens":null,"n":null,"messages":null,"system":null,"tools":null,
            "input":null,"prompt":null,"instructions":null}"#,
    );
    assert_eq!(digest.model_kind, ModelKind::Null);
    let absent = read("{}");
    assert_eq!(absent.model_kind, ModelKind::Absent);
    assert_eq!(
        digest,
        crate::digest::Digest {
            model_kind: ModelKind::Null,
            ..absent
        }
    );
}

#[test]
fn a_model_is_kept_as_sent_and_decoded() {
    for (literal, model) in [
        (r#""""#, ""),
        (r#"" test-model""#, " test-model"),
        (r#""\u0061\n\/""#, "a\n/"),
        (r#""模型""#, "模型"),
        (r#""\ud83d\ude00""#, "😀"),
    ] {
        let digest = read(&format!(r#"{{"model":{literal}}}"#));
        assert_eq!(digest.model.as_deref(), Some(model));
    }
    let long = "m".repeat(257);
    assert_eq!(read(&format!(r#"{{"model":"{long}"}}"#)).model, Some(long));
}

#[test]
fn member_names_are_exact() {
    let digest = read(r#"{"model ":"a","_stream":"x","max-tokens":"y"}"#);
    assert_eq!(digest.model_kind, ModelKind::Absent);
    assert_eq!((digest.stream, digest.max_tokens), (None, None));
}

#[test]
fn a_limit_may_be_written_as_a_whole_float_and_a_negative_one_is_kept() {
    for (literal, value) in [
        ("0", 0),
        ("-0", 0),
        ("-1", -1),
        ("10.0", 10),
        ("16.0", 16),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1500e-2", 15),
        ("-5.0", -5),
        ("-0.0", 0),
        ("4611686018427387904", 1 << 62),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("9007199254740993", 9_007_199_254_740_993),
        ("16.00000000000000000001", 16),
    ] {
        for field in [
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n",
        ] {
            let digest = read(&format!(r#"{{"{field}":{literal}}}"#));
            let fields = [
                digest.max_tokens,
                digest.max_completion_tokens,
                digest.max_output_tokens,
                digest.n,
            ];
            assert_eq!(
                fields.iter().flatten().collect::<Vec<_>>(),
                [&value],
                "{literal}"
            );
        }
    }
}

#[test]
fn a_hundred_thousand_choices_are_read_for_the_router_to_judge() {
    assert_eq!(read(r#"{"n":100000}"#).n, Some(100_000));
}

#[test]
fn text_is_counted_in_bytes_of_its_decoded_utf8() {
    let content =
        |literal: &str| text_bytes(&format!(r#"{{"messages":[{{"content":"{literal}"}}]}}"#));
    assert_eq!(content("hello"), 5);
    assert_eq!(content(r"a\nb\u00e9\\"), 6);
    assert_eq!(content("你好🌍"), 10);
    assert_eq!(content(r"\ud83c\udf0d"), 4);
    assert_eq!(content(""), 0);
}

#[test]
fn text_parts_and_plain_strings_of_a_content_array_are_counted() {
    let digest = read(
        r#"{"messages":[{"role":"user","content":[
            {"type":"text","text":"12345"},{"text":"678","type":"text"},"90",
            {"type":"thinking","thinking":"no","text":"no"},{"type":"text","text":{"v":"no"}},
            {"type":"document","source":{"text":"no"}},{"type":"input_audio","input_audio":{"data":"no"}},
            null,5,["1"]]}]}"#,
    );
    assert_eq!((digest.text_bytes, digest.messages), (11, 1));
}

#[test]
fn roles_names_and_tool_calls_are_not_text() {
    assert_eq!(
        text_bytes(
            r#"{"messages":[{"role":"assistant","name":"x","content":null,
                "tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}"#
        ),
        0
    );
}

#[test]
fn text_inside_a_tool_result_is_message_text_in_whatever_order_its_members_stand() {
    let digest = read(
        r#"{"messages":[{"content":[
            {"type":"tool_result","tool_use_id":"t","content":"12345"},
            {"content":[{"type":"text","text":"678"},{"type":"image","source":{}}],"type":"tool_result"},
            {"type":"search_result","content":[{"type":"text","text":"no"}]}]}]}"#,
    );
    assert_eq!((digest.text_bytes, digest.images), (8, 1));
}

#[test]
fn the_system_prompt_counts_as_a_string_or_as_text_blocks() {
    assert_eq!(text_bytes(r#"{"system":"1234"}"#), 4);
    assert_eq!(
        text_bytes(
            r#"{"system":[{"type":"text","text":"12","cache_control":{"type":"ephemeral"}},{"type":"text","text":"3"}]}"#
        ),
        3
    );
    assert_eq!(text_bytes(r#"{"system":5}"#), 0);
}

#[test]
fn tools_count_by_their_bytes_as_sent() {
    assert_eq!(text_bytes(r#"{"tools": [ {"a": "\u0061"} ] ,"x":1}"#), 19);
    assert_eq!(text_bytes(r#"{"tools":"x"}"#), 3);
    assert_eq!(text_bytes("{\"tools\":null}"), 0);
    assert_eq!(text_bytes(r#"{"tools":[]}"#), 2);
}

#[test]
fn image_parts_are_counted_by_type() {
    let digest = read(
        r#"{"messages":[
            {"content":[{"type":"image_url","image_url":{"url":"data:"}},{"type":"image_url","image_url":"str"}]},
            {"content":[{"type":"image","source":{"type":"base64","data":"xx"}},{"image_url":"no type"},
                        {"type":"text","text":"","image_url":"not an image"}]}],
            "system":[{"type":"image"}]}"#,
    );
    assert_eq!((digest.images, digest.messages), (4, 2));
}

#[test]
fn shapes_that_only_the_engine_judges_pass() {
    for messages in [
        "null",
        "{}",
        "[null]",
        "[5,\"x\",[]]",
        "\"x\"",
        "true",
        "1.5",
        r#"[{"content":null}]"#,
        r#"[{"content":5}]"#,
        r#"[{"content":{}}]"#,
        r#"[{"content":true}]"#,
        r#"[{"content":[{"type":5,"text":[]}]}]"#,
        r#"[{"content":[{"type":"text","text":7}]}]"#,
        r#"[{"role":5}]"#,
    ] {
        read(&format!(r#"{{"model":"m","messages":{messages}}}"#));
    }
    read(
        r#"{"temperature":"hot","top_p":[],"audio":{"voice":{"id":"v"}},"service_tier":1,"modalities":"x"}"#,
    );
    assert_eq!(read(r#"{"messages":[null,1,{}]}"#).messages, 3);
}

#[test]
fn nesting_of_a_hundred_levels_passes() {
    let body = format!(r#"{{"x":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    read(&body);
}

#[test]
fn prompts_of_the_other_endpoints_are_counted_apart() {
    let input_bytes = |body: &str| {
        let digest = read(body);
        assert_eq!(digest.text_bytes, 0);
        (digest.input_bytes, digest.images)
    };
    assert_eq!(input_bytes(r#"{"prompt":"12345"}"#), (5, 0));
    assert_eq!(input_bytes(r#"{"prompt":["12","3"]}"#), (3, 0));
    assert_eq!(
        input_bytes(r#"{"input":"1234","instructions":"56"}"#),
        (6, 0)
    );
    assert_eq!(
        input_bytes(
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"12"},{"type":"input_image"}]},
                {"type":"function_call_output","output":"345"},"6"]}"#
        ),
        (6, 1)
    );
}

#[test]
fn the_hash_is_over_the_bytes_as_received() {
    assert_eq!(
        sha256_hex(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(sha256(b"")[..2], [0xe3, 0xb0]);
}
