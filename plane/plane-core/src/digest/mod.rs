//! What does the router need to know of a request body, and is the body JSON that every reader
//! understands alike?
//!
//! One pass of `serde_json` over the bytes answers both, without building a tree. Invariant: what is
//! accepted here is accepted by Python's `json` too, with the same `model`, `stream` and limits. Shapes
//! that only the engine cares about pass whatever they are. The size limit of the body, the length of
//! the model name and the token estimate itself are left to the caller.
//! Source: architecture.md §2, http-api.md §3.1 and §15 items 18, 20, 21, decisions.md 5 and 35.

mod error;
mod read;
#[cfg(test)]
mod tests;
mod value;

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub use error::{DigestError, DigestErrorKind};

/// Arrays and objects may nest this deep, the body's own object included.
pub const DEPTH_MAX: u32 = 128;

/// Members the top-level object may have; they are remembered to find duplicates.
pub const MEMBERS_MAX: usize = 1024;

/// What `model` held. Any other type is refused with [`DigestErrorKind::WrongType`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelKind {
    #[default]
    Absent,
    Null,
    String,
}

/// What the router reads off a request body. A member that is `null` counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The decoded name, possibly empty; `None` unless `model_kind` is [`ModelKind::String`].
    pub model: Option<String>,
    pub model_kind: ModelKind,
    pub stream: Option<bool>,
    /// Token limits as sent; a negative one is kept, `16.0` and `1e3` are whole numbers.
    pub max_tokens: Option<i64>,
    pub max_completion_tokens: Option<i64>,
    /// The limit's name on `/v1/responses`.
    pub max_output_tokens: Option<i64>,
    /// Choices asked for.
    pub n: Option<i64>,
    /// UTF-8 bytes of decoded text in `messages` and `system`, plus `tools` as sent.
    pub text_bytes: u64,
    /// UTF-8 bytes of decoded text in `prompt`, `input` and `instructions`, which `/v1/completions` and
    /// `/v1/responses` send in place of `messages`. Not part of `text_bytes`.
    pub input_bytes: u64,
    /// Elements of the `messages` array.
    pub messages: u32,
    /// Image parts in the content of `messages` and `input`, those inside tool results included.
    pub images: u32,
}

/// Reads `body` once and says what the router needs to know of it.
///
/// # Errors
/// [`DigestError`], with the byte where reading stopped, when the body is not JSON in UTF-8 with one
/// object at its top, or when a member that the router acts on cannot be used. The answer is a 400.
pub fn digest(body: &[u8]) -> Result<Digest, DigestError> {
    let text = checked_text(body)?;
    let context = read::Context::new(text);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // Every seed counts its own depth against DEPTH_MAX; serde_json's limit is one level short of it.
    deserializer.disable_recursion_limit();
    let digest = read::top_level(&mut deserializer, &context)
        .map_err(|source| context.error_of(&source, text, 0))?;
    deserializer
        .end()
        .map_err(|source| context.error_of(&source, text, 0))?;
    Ok(digest)
}

/// The SHA-256 of `body`, of the bytes as received.
#[must_use]
pub fn sha256(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// The SHA-256 of `body` in 64 lower-case hexadecimal digits.
#[must_use]
pub fn sha256_hex(body: &[u8]) -> String {
    sha256(body)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The body as text, once everything that can be told from its encoding and first byte holds.
fn checked_text(body: &[u8]) -> Result<&str, DigestError> {
    let fail = |kind, offset| Err(DigestError { kind, offset });
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) => return fail(DigestErrorKind::InvalidUtf8, error.valid_up_to()),
    };
    if text.starts_with('\u{feff}') {
        return fail(DigestErrorKind::ByteOrderMark, 0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    match body.iter().position(|byte| !is_space(byte)) {
        None => fail(DigestErrorKind::Empty, body.len()),
        Some(start) if body[start] == b'{' => Ok(text),
        Some(start) if error::is_non_finite(&body[start..]) => {
            fail(DigestErrorKind::NonFiniteNumber, start)
        }
        Some(start) => fail(DigestErrorKind::NotAnObject, start),
    }
}

/// The first characters of a member name, short enough for an error text.
fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
