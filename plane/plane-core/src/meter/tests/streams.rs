//! What is read off streams of each dialect. Source: http-api.md §4.3, field-cases.md O-17.

use super::{counts, delta, event, meter};

const OPENAI_USAGE: &str =
    r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;

#[test]
fn a_chat_stream_with_usage_is_metered_exactly() {
    let usage = meter(
        [
            delta(r#"{"role":"assistant","content":""}"#),
            delta(r#"{"content":"hel"}"#),
            event(r#"{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#),
            event(OPENAI_USAGE),
            event("[DONE]"),
        ]
        .concat(),
    );
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert_eq!(
        (usage.output_bytes, usage.events, usage.output_events),
        (5, 5, 2)
    );
    assert!(usage.terminator_seen && usage.finish_seen && usage.at_boundary);
    assert!(!usage.error_event_seen);
}

#[test]
fn a_chat_stream_without_usage_counts_its_bytes() {
    let usage = meter([delta(r#"{"content":"hel"}"#), delta(r#"{"content":"lo"}"#)].concat());
    assert_eq!(counts(&usage), (None, None, false));
    assert_eq!((usage.output_bytes, usage.output_events), (5, 2));
    assert!(!usage.terminator_seen && !usage.finish_seen);
}

#[test]
fn the_last_usage_that_is_not_zero_wins() {
    let usage = |prompt: u64, completion: u64| {
        event(&format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}"#
        ))
    };
    let seen = meter([usage(9, 1), usage(9, 5), usage(0, 0), usage(9, 4)].concat());
    assert_eq!(counts(&seen), (Some(9), Some(4), true));
    let seen = meter([usage(9, 4), usage(0, 0)].concat());
    assert_eq!(counts(&seen), (Some(9), Some(4), true));
    assert_eq!(counts(&meter(usage(0, 0))), (None, None, false));
}

#[test]
fn usage_inside_a_choice_counts_too() {
    let usage = meter(event(
        r#"{"choices":[{"delta":{},"usage":{"prompt_tokens":3,"completion_tokens":4}}]}"#,
    ));
    assert_eq!(counts(&usage), (Some(3), Some(4), true));
}

#[test]
fn reasoning_refusals_and_tool_arguments_are_output() {
    for (part, bytes) in [
        (r#"{"reasoning_content":"12345"}"#, 5),
        (r#"{"reasoning":"12345"}"#, 5),
        (
            r#"{"reasoning":"12345","reasoning_content":"12345","content":"6"}"#,
            6,
        ),
        (r#"{"reasoning":null,"reasoning_content":"12345"}"#, 5),
        (r#"{"reasoning":"","reasoning_content":"12345"}"#, 5),
        (r#"{"refusal":"no"}"#, 2),
        (
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\""}},
            {"index":1,"function":{"arguments":":1}"}}]}"#,
            7,
        ),
        (r#"{"function_call":{"name":"f","arguments":"{}"}}"#, 2),
        (
            r#"{"content":[{"type":"text","text":"ab"},{"type":"thinking","thinking":[{"text":"c"}]}]}"#,
            3,
        ),
        (r#"{"role":"assistant","content":null}"#, 0),
    ] {
        let usage = meter(delta(&part.replace('\n', "")));
        assert_eq!(usage.output_bytes, bytes, "{part}");
        assert_eq!(usage.output_events, u64::from(bytes > 0), "{part}");
    }
}

#[test]
fn text_of_other_members_is_no_output() {
    let usage = meter(event(
        r#"{"id":"content","model":"text","choices":[{"delta":{"role":"x","other":{"content":"no"}},
        "logprobs":{"content":[{"token":"no","text":"no"}]},"message":{"content":"no"}}]}"#
            .replace('\n', "")
            .as_str(),
    ));
    assert_eq!(
        (usage.output_bytes, usage.events, usage.output_events),
        (0, 1, 0)
    );
}

#[test]
fn completions_streams_are_metered() {
    let usage = meter(event(
        r#"{"choices":[{"text":"hello","finish_reason":"length"}]}"#,
    ));
    assert_eq!(usage.output_bytes, 5);
    assert!(usage.finish_seen);
}

#[test]
fn text_is_counted_in_bytes_of_its_decoded_utf8() {
    for (literal, bytes) in [
        ("你好🌍", 10),
        (r"\u4f60\u597d\ud83c\udf0d", 10),
        (r"a\n\t\\\/\u0041\u00e9", 8),
        (r"\ud83c", 3),
        (r"\ud83cx\udf0d", 7),
        (r"\\u4f", 4),
        (r"\zzz", 3),
        (r"\u12", 0),
    ] {
        let usage = meter(delta(&format!(r#"{{"content":"{literal}"}}"#)));
        assert_eq!(usage.output_bytes, bytes, "{literal}");
        assert!(usage.at_boundary);
    }
}

const MESSAGE_START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\
    \"type\":\"message\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":100,\
    \"cache_creation_input_tokens\":20,\"output_tokens\":1}}}\n\n";

fn block_delta(delta: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{delta}}}\n\n"
    )
}

fn message_delta(usage: &str) -> String {
    format!(
        "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{usage}}}\n\n"
    )
}

#[test]
fn a_messages_stream_is_metered_exactly() {
    let usage = meter(
        [
            MESSAGE_START,
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            &block_delta(r#"{"type":"text_delta","text":"hello"}"#),
            &block_delta(r#"{"type":"thinking_delta","thinking":"hm"}"#),
            &block_delta(r#"{"type":"signature_delta","signature":"no"}"#),
            &block_delta(r#"{"type":"input_json_delta","partial_json":"{\"a\":"}"#),
            &message_delta(r#"{"output_tokens":7}"#),
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ]
        .concat(),
    );
    assert_eq!(counts(&usage), (Some(9), Some(7), true));
    assert_eq!((usage.output_bytes, usage.cache_tokens), (12, 120));
    assert_eq!((usage.events, usage.output_events), (9, 3));
    assert!(usage.terminator_seen && usage.finish_seen && !usage.error_event_seen);
}

#[test]
fn message_start_alone_gives_the_prompt_but_not_the_output() {
    let usage = meter(
        [
            MESSAGE_START,
            &block_delta(r#"{"type":"text_delta","text":"hello"}"#),
        ]
        .concat(),
    );
    assert_eq!(counts(&usage), (Some(9), Some(1), false));
    assert!(!usage.finish_seen && !usage.terminator_seen);
}

#[test]
fn the_largest_output_count_of_a_messages_stream_stands() {
    let usage = meter(
        [
            MESSAGE_START,
            &message_delta(r#"{"output_tokens":7}"#),
            &message_delta(r#"{"input_tokens":4,"output_tokens":5}"#),
        ]
        .concat(),
    );
    assert_eq!(counts(&usage), (Some(9), Some(7), true));
}

#[test]
fn the_last_number_of_an_event_is_known() {
    let numbered = |number: &str| event(&format!(r#"{{"type":"x","sequence_number":{number}}}"#));
    for (numbers, last) in [
        (&[][..], None),
        (&["0"], Some(0)),
        (&["0", "1", "2"], Some(2)),
        (&["7", "null", "\"8\"", "-1", "{}"], Some(7)),
    ] {
        let stream: String = numbers.iter().map(|number| numbered(number)).collect();
        assert_eq!(meter(stream).sequence_number, last, "{numbers:?}");
    }
    let elsewhere =
        event(r#"{"response":{"sequence_number":5},"choices":[{"sequence_number":6}]}"#);
    assert_eq!(meter(elsewhere).sequence_number, None);
}

#[test]
fn a_responses_stream_is_metered() {
    let usage = meter(
        [
            event(r#"{"type":"response.created","response":{"id":"r","error":null,"usage":null}}"#),
            event(r#"{"type":"response.output_text.delta","delta":"hello"}"#),
            event(r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#),
            event(
                r#"{"response":{"error":null,"usage":{"input_tokens":9,"output_tokens":2}},"type":"response.completed"}"#,
            ),
        ]
        .concat(),
    );
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert_eq!(usage.output_bytes, 7);
    assert!(usage.terminator_seen && usage.finish_seen && !usage.error_event_seen);
    let usage = meter(event(
        r#"{"type":"response.failed","response":{"error":{"code":"x"}}}"#,
    ));
    assert!(usage.terminator_seen && usage.error_event_seen);
}

#[test]
fn an_error_inside_a_stream_is_seen_in_every_dialect() {
    for stream in [
        event(r#"{"error":{"message":"boom","type":"server_error"}}"#),
        event(r#"{"error":"boom"}"#),
        event(r#"{"object":"error","message":"boom","code":400}"#),
        event(r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
        "event: error\ndata: boom\n\n".to_owned(),
        "data: boom\nevent: error\n\n".to_owned(),
    ] {
        assert!(meter(&stream).error_event_seen, "{stream}");
    }
    for stream in [
        event(r#"{"error":null,"choices":[]}"#),
        event(r#"{"choices":[{"delta":{"content":"{\"error\":1}"},"error":{}}]}"#),
        "event: error\n\n".to_owned(),
        ": error\n\n".to_owned(),
    ] {
        assert!(!meter(&stream).error_event_seen, "{stream}");
    }
}

#[test]
fn a_terminator_is_seen_only_where_it_is_one() {
    for stream in [
        "data: [DONE]\n\n",
        "data:[DONE]\n\n",
        "data: [DONE]",
        "data: [DONE]\r\n\r\n",
        "data: {}\ndata: [DONE]\n\n",
        "event: message_stop\ndata: {}\n\n",
    ] {
        assert!(meter(stream).terminator_seen, "{stream}");
    }
    for stream in [
        "data: [DON",
        "data: \"[DONE]\"\n\n",
        ": [DONE]\n\n",
        "event: message_stop\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"[DONE]\",\"type\":\"message_stop\"}}]}\n\n",
        "xdata: [DONE]\n\n",
    ] {
        assert!(!meter(stream).terminator_seen, "{stream}");
    }
}
