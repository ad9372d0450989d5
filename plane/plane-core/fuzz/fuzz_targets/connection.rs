//! Whatever comes over a connection: what is served of it is what two plain readers find in it, the canary behind it
//! is served as itself or not at all, and every request has one answer. The first byte of the input sets the cuts.
#![no_main]

#[path = "../shared/connection.rs"]
mod connection;

use connection::House;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static HOUSE: LazyLock<House> = LazyLock::new(House::open);

fuzz_target!(|input: &[u8]| {
    if let Some((cut, wire)) = input.split_first() {
        HOUSE.check(wire, usize::from(*cut) * 16 + 1);
    }
});
