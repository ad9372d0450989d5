//! Whatever an engine answers over a connection: what the client is given does not depend on the pieces it comes in,
//! it is what a plain reader finds, and the request behind it has an answer of its own.
#![no_main]

#[path = "../shared/answers.rs"]
mod answers;

use answers::House;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static HOUSE: LazyLock<House> = LazyLock::new(House::open);

fuzz_target!(|wire: &[u8]| {
    HOUSE.check(wire, wire.len() % 61 + 1);
});
