//! What holds for any body, found by chance instead of by example.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::digest::{Digest, digest};

/// `body` by serde_json's own tree, without its depth limit of one level less.
fn tree(body: &[u8]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer).ok()?;
    deserializer.end().ok().map(|()| value)
}

/// Texts close to JSON: pieces that the rules speak of, in any order.
fn near_json() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just(" "),
        Just("\n"),
        Just("\"model\""),
        Just("\"stream\""),
        Just("\"max_tokens\""),
        Just("\"messages\""),
        Just("\"content\""),
        Just("\"text\""),
        Just("\"type\""),
        Just("\"tools\""),
        Just("\"a\\u0062\""),
        Just("\"\\ud800\""),
        Just("\"\\ud83d\\ude00\""),
        Just("\"é\""),
        Just("null"),
        Just("true"),
        Just("false"),
        Just("0"),
        Just("-1"),
        Just("16.0"),
        Just("1e3"),
        Just("1e999"),
        Just("NaN"),
        Just("-Infinity"),
        Just("\u{feff}"),
        Just("\""),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("text".to_owned()),
        Just("tool_result".to_owned()),
        any::<String>()
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("content".to_owned()),
        Just("text".to_owned()),
        Just("type".to_owned()),
        Just("image_url".to_owned()),
        any::<String>(),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((name.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The text and images of a content, told over a tree: the plain model of [`super::super::value`].
fn content(value: &Value) -> (u64, u32) {
    match value {
        Value::String(text) => (text.len() as u64, 0),
        Value::Array(parts) => parts
            .iter()
            .map(content)
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        Value::Object(part) => {
            let text = || match part.get("text") {
                Some(Value::String(text)) => (text.len() as u64, 0),
                _ => (0, 0),
            };
            match part.get("type").and_then(Value::as_str) {
                Some("text" | "input_text" | "output_text") => text(),
                Some("image_url" | "image" | "input_image") => (0, 1),
                Some("tool_result") => part.get("content").map_or((0, 0), content),
                Some(_) => (0, 0),
                None if part.contains_key("image_url") => (0, 1),
                None => text(),
            }
        }
        _ => (0, 0),
    }
}

fn assert_agrees(body: &[u8]) {
    let Ok(digest) = digest(body) else { return };
    let tree = tree(body).expect("what the digest accepts is JSON");
    let object = tree.as_object().expect("and an object");
    assert_eq!(
        digest.model.as_deref(),
        object.get("model").and_then(Value::as_str)
    );
    assert_eq!(digest.stream, object.get("stream").and_then(Value::as_bool));
    if let Some(limit) = object.get("max_tokens").and_then(Value::as_i64) {
        assert_eq!(digest.max_tokens, Some(limit));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_inside_the_body(body in vec(any::<u8>(), 0..64)) {
        if let Err(error) = digest(&body) {
            prop_assert!(error.offset <= body.len());
        }
    }

    #[test]
    fn what_is_accepted_is_json_with_the_same_model(body in near_json()) {
        assert_agrees(&body);
        if let Err(error) = digest(&body) {
            prop_assert!(error.offset <= body.len());
        }
    }

    #[test]
    fn the_same_holds_around_an_object(inner in near_json()) {
        let body = [b"{\"model\":", inner.as_slice(), b"}"].concat();
        assert_agrees(&body);
    }

    #[test]
    fn any_object_is_accepted_and_counted_as_over_its_tree(messages in json_value(), x in json_value()) {
        let body = serde_json::json!({"model": "m", "messages": messages, "x": x});
        let digest = digest(body.to_string().as_bytes()).expect("serde_json wrote it");
        let mut expected = Digest { model: digest.model.clone(), model_kind: digest.model_kind, ..Digest::default() };
        if let Value::Array(messages) = &messages {
            expected.messages = u32::try_from(messages.len()).unwrap();
            for message in messages.iter().filter_map(|message| message.as_object()) {
                for (name, value) in message {
                    if name == "content" || name == "output" {
                        let (bytes, images) = content(value);
                        expected.text_bytes += bytes;
                        expected.images += images;
                    }
                }
            }
        }
        prop_assert_eq!(digest, expected);
    }

    #[test]
    fn a_cut_body_is_refused(x in json_value(), cut in any::<prop::sample::Index>()) {
        let body = serde_json::json!({"model": "m", "x": x}).to_string().into_bytes();
        prop_assert!(digest(&body[..cut.index(body.len())]).is_err());
    }

    #[test]
    fn a_whole_number_is_read_the_same_in_every_spelling(number in -(1_i64 << 53)..(1_i64 << 53)) {
        for literal in [format!("{number}"), format!("{number}.0"), format!("{number}e0"), format!("{number}0e-1")] {
            let read = digest(format!(r#"{{"max_tokens":{literal}}}"#).as_bytes()).unwrap();
            prop_assert_eq!(read.max_tokens, Some(number));
        }
    }
}
