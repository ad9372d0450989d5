//! However a stream is cut, the meter reports the same. The first byte of the input sets the cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plane_core::meter::{Meter, usage_of_body};

fuzz_target!(|input: &[u8]| {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let mut whole = Meter::new();
    whole.feed(stream);

    let mut in_pieces = Meter::new();
    let mut rest = stream;
    let mut state = u32::from(*seed);
    while !rest.is_empty() {
        // A linear congruence: pieces of 1 to 16 bytes, the same for the same input.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = ((state >> 28) as usize + 1).min(rest.len());
        let (piece, after) = rest.split_at(size);
        in_pieces.feed(piece);
        rest = after;
    }
    assert_eq!(in_pieces.snapshot(), whole.snapshot());

    let mut byte_by_byte = Meter::new();
    stream.chunks(1).for_each(|byte| byte_by_byte.feed(byte));
    assert_eq!(byte_by_byte.snapshot(), whole.snapshot());

    let is_object =
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(stream).is_ok();
    assert!(usage_of_body(stream).is_some() || !is_object);
});
