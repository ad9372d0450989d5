//! What is it that a backend sends, whatever its label says?
//!
//! Source: field-cases.md O-23; decisions.md 39.

use memchr::memmem;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// It begins as a line of an event stream does.
    Events,
    /// It begins as an object, an array or a string does.
    Json,
    Other,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const FIRST_LINES: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

impl Looks {
    /// By the bytes so far; `None` while they could still be either.
    pub(super) fn of(start: &[u8]) -> Option<Looks> {
        let body = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
        let body = body.trim_ascii_start();
        if body.is_empty() || BYTE_ORDER_MARK.starts_with(body) {
            return None;
        }
        if matches!(body[0], b'{' | b'[' | b'"') {
            return Some(Looks::Json);
        }
        if FIRST_LINES.iter().any(|line| body.starts_with(line)) {
            return Some(Looks::Events);
        }
        let may_become = FIRST_LINES.iter().any(|line| line.starts_with(body));
        (!may_become).then_some(Looks::Other)
    }
}

/// Whether there is nothing in it but white space.
pub(super) fn is_blank(body: &[u8]) -> bool {
    body.iter().all(u8::is_ascii_whitespace)
}

/// Whether a request body that nobody has read has a member `"stream": true` somewhere.
///
/// It may stand deeper than at the top: whoever asks looks at the answer too.
pub(super) fn has_stream_true(body: &[u8]) -> bool {
    memmem::find_iter(body, b"\"stream\"").any(|at| {
        let rest = body[at + b"\"stream\"".len()..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"true"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_events_from_json_and_all_else() {
        for (start, looks) in [
            (&b"data: 1"[..], Some(Looks::Events)),
            (b"event: message_start", Some(Looks::Events)),
            (b": ping", Some(Looks::Events)),
            (b"\r\n\r\ndata:", Some(Looks::Events)),
            (b"\xef\xbb\xbfdata:", Some(Looks::Events)),
            (b" {", Some(Looks::Json)),
            (b"[", Some(Looks::Json)),
            (b"Hello", Some(Looks::Other)),
            (b"dates:", Some(Looks::Other)),
            (b"dat", None),
            (b"\n ", None),
            (b"\xef\xbb", None),
            (b"", None),
        ] {
            assert_eq!(Looks::of(start), looks, "{start:?}");
        }
    }

    #[test]
    fn a_stream_is_asked_for_by_a_member_and_not_by_a_text() {
        for (body, is_asked) in [
            (&b"{\"stream\":true}"[..], true),
            (b"{\"stream\" :\n true}", true),
            (b"{\"stream\":false}", false),
            (b"{\"stream\":null,\"x\":true}", false),
            (b"{\"p\":\"\\\"stream\\\":true\"}", false),
            (b"{\"stream\"", false),
            (b"", false),
        ] {
            assert_eq!(has_stream_true(body), is_asked, "{body:?}");
        }
    }
}
