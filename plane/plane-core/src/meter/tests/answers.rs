//! What is read off buffered answers. Source: http-api.md §4.2 and §15 item 8, field-cases.md O-04, A-16.

use super::{counts, usage_of_body};

fn usage(body: &str) -> super::Usage {
    usage_of_body(body.as_bytes()).unwrap_or_else(|| panic!("{body} is an object"))
}

#[test]
fn usage_is_read_under_either_name() {
    for (members, prompt, completion) in [
        (
            r#""prompt_tokens":10,"completion_tokens":5,"total_tokens":15"#,
            10,
            5,
        ),
        (r#""input_tokens":10,"output_tokens":5"#, 10, 5),
        (
            r#""prompt_tokens":0,"completion_tokens":0,"input_tokens":10,"output_tokens":5"#,
            10,
            5,
        ),
        (r#""prompt_tokens":10,"total_tokens":15"#, 10, 5),
        (r#""completion_tokens":5,"total_tokens":15"#, 10, 5),
        (r#""prompt_tokens":10,"total_tokens":10"#, 10, 0),
        (r#""total_tokens":10"#, 10, 0),
        (r#""prompt_tokens":10.0,"completion_tokens":5.0"#, 10, 5),
        (
            r#""prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}"#,
            10,
            5,
        ),
    ] {
        let usage = usage(&format!(r#"{{"id":"x","usage":{{{members}}}}}"#));
        assert_eq!(
            counts(&usage),
            (Some(prompt), Some(completion), true),
            "{members}"
        );
    }
}

#[test]
fn odd_shapes_elsewhere_do_not_hide_the_usage() {
    let usage = usage(
        r#" {"created":1.5,"id":7,"choices":[{"logprobs":{"content":[{"logprob":-Infinity,"x":NaN}]},
            "message":{"content":[{"type":"text","text":"hello"}]}},null,"x"],"error":null,
            "usage":{"prompt_tokens":9,"completion_tokens":2}} "#,
    );
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert_eq!(usage.output_bytes, 5);
    assert!(!usage.error_event_seen && usage.at_boundary);
}

#[test]
fn an_answer_without_usage_still_tells_its_output_bytes() {
    for (body, bytes) in [
        (
            r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}"#,
            5,
        ),
        (
            r#"{"choices":[{"message":{"content":null,"reasoning_content":"hm","tool_calls":[{"function":{"arguments":"{}"}}]}}]}"#,
            4,
        ),
        (r#"{"choices":[{"text":"hello"}],"usage":null}"#, 5),
        (
            r#"{"type":"message","content":[{"type":"text","text":"hello"},{"type":"thinking","thinking":"hm"}]}"#,
            7,
        ),
        (
            r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]},{"type":"function_call","arguments":"{}"}]}"#,
            7,
        ),
        ("{}", 0),
    ] {
        let usage = usage(body);
        assert_eq!(counts(&usage), (None, None, false), "{body}");
        assert_eq!(usage.output_bytes, bytes, "{body}");
    }
}

#[test]
fn a_body_that_is_no_object_has_no_usage() {
    for body in [
        "",
        "  ",
        "hello",
        "null",
        "[]",
        "\"x\"",
        "5",
        "{",
        "{bad}",
        "{\"a\":oops}",
        "{} x",
        "{}{}",
        "{}5",
        "{}\"\"",
        "{\"usage\":{\"prompt_tokens\":9}",
        "data: {}\n\n",
        "<html></html>",
        "[{\"usage\":{\"prompt_tokens\":9}}]",
        "{\"a\":\"b",
        "}",
        "{}}",
        "\u{feff}{}",
    ] {
        assert_eq!(usage_of_body(body.as_bytes()), None, "{body}");
    }
    assert_eq!(usage_of_body(b"\x1f\x8b\x08\x00{}"), None);
}
