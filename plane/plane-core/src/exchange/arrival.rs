//! A request as it arrived, whole, with what was read off its body.

use super::{Mailbox, looks::has_stream_true};
use crate::{
    bodies::Held,
    digest::{Digest, DigestError},
    events::Handle,
    http1::{RequestHead, write::Pair},
};
use bytes::Bytes;
use std::{sync::Arc, time::Instant};

/// Why the body is not there, or not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Longer than the listener takes.
    TooLarge,
    /// The sender stopped before its end.
    Incomplete,
    /// Its chunks are malformed.
    BadChunk,
    /// It did not come within the time allowed.
    Slow,
    /// The plane holds as many bytes of request bodies as it may.
    Overloaded,
    /// It was not asked for: whatever is in it, the head alone decides on the answer.
    Unasked,
    /// The listener closed before it was there.
    Stopping,
}

impl Problem {
    pub fn name(self) -> &'static str {
        match self {
            Problem::TooLarge => "too_large",
            Problem::Incomplete => "incomplete",
            Problem::BadChunk => "bad_chunk",
            Problem::Slow => "slow",
            Problem::Overloaded => "overloaded",
            Problem::Unasked => "unasked",
            Problem::Stopping => "stopping",
        }
    }
}

#[derive(Debug)]
pub struct Arrival {
    pub handle: Handle,
    pub listener: Arc<str>,
    pub head: RequestHead,
    pub body: Bytes,
    pub problem: Option<Problem>,
    /// A standing rule forwards it without a question; only a failure is told.
    pub is_standing: bool,
    /// Counts the body against the plane's bound for as long as anybody holds it.
    pub held: Held,
    /// Only where the listener asks for it and there is a body.
    pub digest: Option<Result<Digest, DigestError>>,
    /// Address of the client, or of the peer's end of the link.
    pub client: Arc<str>,
    /// Set when the request came from a peer.
    pub peer: Option<Arc<str>>,
    /// That peer is of our own kind.
    pub is_from_own_kind: bool,
    pub request_id: String,
    /// Fields that every reply of this listener carries.
    pub standing_fields: Arc<Vec<Pair>>,
    /// Names under which the request ID is told in replies.
    pub request_id_names: &'static [&'static str],
    pub arrived_at: Instant,
    pub mailbox: Mailbox,
}

impl Arrival {
    pub fn is_head_method(&self) -> bool {
        &self.head.method[..] == b"HEAD"
    }

    /// Whether the client asked for a stream, by the digest or, where there is none, by the look of the body.
    pub(super) fn asks_for_stream(&self) -> bool {
        match &self.digest {
            Some(Ok(digest)) => digest.stream == Some(true),
            _ => has_stream_true(&self.body),
        }
    }

    /// Seconds since the head was read.
    pub fn age_s(&self) -> f64 {
        self.arrived_at.elapsed().as_secs_f64()
    }
}

/// A 36-character UUID is kept byte for byte; anything else is replaced by a new one.
///
/// Source: decisions.md 30; http-api.md §2.3, §15 item 25.
pub fn request_id(given: Option<&[u8]>) -> String {
    let kept = given
        .filter(|id| id.len() == 36)
        .and_then(|id| std::str::from_utf8(id).ok());
    match kept.filter(|id| uuid::Uuid::try_parse(id).is_ok()) {
        Some(id) => id.to_owned(),
        None => uuid::Uuid::new_v4().hyphenated().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::request_id;

    #[test]
    fn only_the_36_character_form_is_kept() {
        let id = "0F8FAD5B-D9CB-469F-A165-70867728950E";
        assert_eq!(request_id(Some(id.as_bytes())), id);
        for other in [
            "",
            "x",
            "0f8fad5bd9cb469fa16570867728950e",
            "{0f8fad5b-d9cb-469f-a165-70867728950}",
            "urn:uuid:0f8fad5b-d9cb-469f-a165-70867728950e",
        ] {
            let made = request_id(Some(other.as_bytes()));
            assert_ne!(made, other);
            assert_eq!(made.len(), 36);
        }
    }
}
