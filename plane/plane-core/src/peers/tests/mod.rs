//! Tests of the link: the muxer over memory pipes, its bytes against the recorded session, the limits of
//! the behaviour, identities, and two whole ends over loopback.

mod bounds;
mod frames;
mod handshake;
mod identity;
mod limits;
mod link;
mod lost;
mod mux;
mod pipe;
mod protocol;
mod strangers;
mod turns;
mod windows;
mod wire;

use super::{Conn, Inbound, LinkStream, Peers};

/// The bytes of a vector.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Callers move streams between tasks and share handles between threads; this does not build otherwise.
const _: () = {
    const fn moves<T: Send + Unpin>() {}
    const fn shares<T: Send + Sync>() {}
    moves::<LinkStream>();
    moves::<Inbound>();
    shares::<Peers>();
    shares::<Conn>();
};
