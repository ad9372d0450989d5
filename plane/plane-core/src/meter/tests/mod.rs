//! What the meter reports, one rule a test. Every stream is metered whole and byte by byte.

mod answers;
mod properties;
mod streams;
mod structure;
mod whole;

use super::{Meter, Usage, usage_of_body};

/// Meters a stream in pieces of every small size; all must agree.
fn meter(stream: impl AsRef<[u8]>) -> Usage {
    let stream = stream.as_ref();
    let in_pieces = |size: usize| {
        let mut meter = Meter::new();
        stream.chunks(size).for_each(|piece| meter.feed(piece));
        meter.snapshot()
    };
    let whole = in_pieces(stream.len().max(1));
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(in_pieces(size), whole, "in pieces of {size}");
    }
    whole
}

/// A `data:` event.
fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// A chat chunk with this delta.
fn delta(delta: &str) -> String {
    event(&format!(
        r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#
    ))
}

fn counts(usage: &Usage) -> (Option<u64>, Option<u64>, bool) {
    (usage.prompt_tokens, usage.completion_tokens, usage.exact)
}
