//! What the digest accepts, refuses and counts, one rule a test.

mod accepted;
mod properties;
mod refused;

use super::{Digest, DigestError, DigestErrorKind, digest};

fn read(body: &str) -> Digest {
    match digest(body.as_bytes()) {
        Ok(digest) => digest,
        Err(error) => panic!("{body} was refused: {error}"),
    }
}

fn refusal(body: impl AsRef<[u8]>) -> DigestError {
    let body = body.as_ref();
    match digest(body) {
        Ok(digest) => panic!("{} gave {digest:?}", String::from_utf8_lossy(body)),
        Err(error) => error,
    }
}

fn refusal_kind(body: impl AsRef<[u8]>) -> DigestErrorKind {
    refusal(body).kind
}
