//! What holds for any stream, found by chance instead of by example.

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Meter, Usage, event, usage_of_body};

fn whole(stream: &[u8]) -> Usage {
    let mut meter = Meter::new();
    meter.feed(stream);
    meter.snapshot()
}

/// Streams of pieces that the rules speak of, in any order.
fn near_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("data: "),
        Just("data:"),
        Just("data"),
        Just("event: error"),
        Just("event: message_stop"),
        Just(": ping"),
        Just("id: 7"),
        Just("\n"),
        Just("\n\n"),
        Just("\r"),
        Just("\r\n"),
        Just("\r\n\r\n"),
        Just("{\"choices\":[{\"delta\":{\"content\":\""),
        Just("\"}}]}"),
        Just("{\"usage\":{\"prompt_tokens\":"),
        Just("12"),
        Just("}}"),
        Just("[DONE]"),
        Just("{\"error\":"),
        Just("null"),
        Just("{}"),
        Just("\\u"),
        Just("d83c"),
        Just("\\"),
        Just("\""),
        Just("é🌍"),
        Just("NaN"),
        Just(","),
        Just("\u{feff}"),
        Just("{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":"),
        Just("\"finish_reason\":"),
        Just("\"stop\""),
    ];
    vec(piece, 0..32).prop_map(|pieces| pieces.concat().into_bytes())
}

fn assert_cuts_do_not_matter(stream: &[u8], cuts: &[prop::sample::Index]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.sort_unstable();
    let mut meter = Meter::new();
    let mut start = 0;
    for cut in cuts {
        meter.feed(&stream[start..cut]);
        start = cut;
    }
    meter.feed(&stream[start..]);
    assert_eq!(meter.snapshot(), whole(stream));
}

/// One chat delta: text and, rarely, usage.
fn chunk() -> impl Strategy<Value = (String, Option<(u32, u32)>)> {
    (
        any::<String>(),
        proptest::option::weighted(0.2, any::<(u32, u32)>()),
    )
}

proptest! {
    #[test]
    fn cuts_do_not_matter_in_any_bytes(stream in vec(any::<u8>(), 0..64), cuts in vec(any::<prop::sample::Index>(), 0..8)) {
        assert_cuts_do_not_matter(&stream, &cuts);
    }

    #[test]
    fn cuts_do_not_matter_in_what_is_nearly_a_stream(stream in near_stream(), cuts in vec(any::<prop::sample::Index>(), 0..12)) {
        assert_cuts_do_not_matter(&stream, &cuts);
    }

    #[test]
    fn any_chat_stream_is_metered_as_it_was_written(chunks in vec(chunk(), 0..8), end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]) {
        let mut expected = Usage { at_boundary: true, ..Usage::default() };
        let mut stream = String::new();
        for (text, usage) in &chunks {
            let mut object = json!({"choices": [{"delta": {"content": text}, "finish_reason": Value::Null}]});
            if let Some((prompt, completion)) = usage {
                object["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": completion});
                if *prompt > 0 || *completion > 0 {
                    expected.prompt_tokens = Some(u64::from(*prompt));
                    expected.completion_tokens = Some(u64::from(*completion));
                    expected.exact = true;
                }
            }
            stream += &event(&object.to_string()).replace('\n', end);
            expected.output_bytes += text.len() as u64;
            expected.events += 1;
            expected.output_events += u64::from(!text.is_empty());
        }
        prop_assert_eq!(whole(stream.as_bytes()), expected);
    }

    #[test]
    fn a_good_event_is_metered_after_any_stream(before in near_stream()) {
        let before = [before.as_slice(), b"\n\n"].concat();
        let stream = [before.as_slice(), event(r#"{"usage":{"prompt_tokens":7,"completion_tokens":8}}"#).as_bytes()].concat();
        let usage = whole(&stream);
        prop_assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(7), Some(8)));
        prop_assert_eq!(usage.events, whole(&before).events + 1);
    }

    #[test]
    fn at_a_boundary_an_error_event_is_understood(before in near_stream()) {
        if whole(&before).at_boundary {
            let stream = [before.as_slice(), event(r#"{"error":{}}"#).as_bytes()].concat();
            prop_assert!(whole(&stream).error_event_seen);
            prop_assert!(whole(&stream).events > whole(&before).events);
        }
    }

    #[test]
    fn every_object_that_serde_json_writes_is_an_answer(members in hash_map(any::<String>(), any::<(String, f64)>(), 0..4)) {
        let body = json!(members).to_string();
        prop_assert!(usage_of_body(body.as_bytes()).is_some(), "{}", body);
        prop_assert_eq!(usage_of_body(&body.as_bytes()[..body.len() - 1]), None);
    }

    #[test]
    fn usage_is_found_beside_any_member(name in "[a-z]{0,8}", text in any::<String>(), number in any::<f64>()) {
        prop_assume!(!matches!(name.as_str(), "usage" | "content" | "error"));
        let body = json!({name: [text, {"usage": number}], "usage": {"prompt_tokens": 7, "completion_tokens": 8}});
        let usage = usage_of_body(body.to_string().as_bytes()).unwrap();
        prop_assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(7), Some(8)));
    }
}
