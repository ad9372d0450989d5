//! No body makes the digest panic, and what it accepts is JSON in which a whole tree shows the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plane_core::digest::digest;
use serde::Deserialize;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let digest = match digest(body) {
        Ok(digest) => digest,
        Err(error) => {
            assert!(error.offset <= body.len());
            return;
        }
    };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    // The digest has its own bound on depth, one level more than serde_json's.
    deserializer.disable_recursion_limit();
    let tree = Value::deserialize(&mut deserializer).expect("what the digest accepts is JSON");
    deserializer.end().expect("nothing follows the object");
    assert!(tree.is_object());
    assert_eq!(digest.model.as_deref(), tree["model"].as_str());
    assert_eq!(digest.stream, tree["stream"].as_bool());
    for (read, name) in [
        (digest.max_tokens, "max_tokens"),
        (digest.max_completion_tokens, "max_completion_tokens"),
        (digest.max_output_tokens, "max_output_tokens"),
        (digest.n, "n"),
    ] {
        if let Some(number) = tree[name].as_i64() {
            assert_eq!(read, Some(number), "{name}");
        }
    }
});
