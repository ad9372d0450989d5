//! How heads and chunks are written. Names and values come from parsed heads or from checked values.

use super::Fields;
use bytes::{Bytes, BytesMut};

/// A header that is put into a head whatever the other side sent.
pub type Pair = (Bytes, Bytes);

pub fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub fn put_length(out: &mut BytesMut, bytes: u64) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub fn put_status_line(out: &mut BytesMut, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes fields that come as values. Those that frame the body or name this hop are left out: they
/// are set by whoever sends the message, and two of them would contradict each other.
pub fn put_values<'a>(out: &mut BytesMut, fields: impl IntoIterator<Item = &'a Pair>) {
    for (name, value) in fields {
        if !super::fields::is_framing(name) {
            put_field(out, name, value);
        }
    }
}

/// Whether any of the fields has that name, whatever its case.
pub fn has_name(fields: &[Pair], name: &[u8]) -> bool {
    fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
}

/// Copies the end-to-end fields for which `keep` holds; what names this hop alone, or is read so where
/// `_` and `-` are the same, stays behind.
pub fn put_end_to_end(out: &mut BytesMut, fields: &Fields, keep: impl Fn(&[u8]) -> bool) {
    let has_connection = fields.has("connection");
    for (name, value) in fields.iter() {
        let hop = match has_connection {
            true => fields.is_hop_by_hop(name),
            false => super::fields::is_hop_by_hop(name),
        };
        if !hop && !super::fields::is_disguised(name) && keep(name) {
            put_field(out, name, value);
        }
    }
}

/// One chunk of a chunked body. Empty data writes nothing: it would end the body.
pub fn put_chunk(out: &mut BytesMut, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    put_hex(out, data.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn put_hex(out: &mut BytesMut, mut n: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (mut text, mut at) = ([0u8; 16], 16);
    loop {
        at -= 1;
        text[at] = DIGITS[n & 15];
        n >>= 4;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

/// A field name or value that may be written as it is: no control byte can break the head.
pub fn is_writable(name: &[u8], value: &[u8]) -> bool {
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !name.is_empty()
        && name.iter().all(token)
        && value
            .iter()
            .all(|b| *b >= 0x20 && *b != 0x7f || *b == b'\t')
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_framed_with_their_length_in_hex() {
        let mut out = BytesMut::new();
        put_chunk(&mut out, &[b'x'; 26]);
        assert_eq!(&out[..], b"1a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n");
        put_chunk(&mut out, b"");
        assert_eq!(out.len(), 32);
    }

    #[test]
    fn a_field_that_could_break_the_head_is_not_writable() {
        assert!(is_writable(b"x-a", b"fine \xe4 too"));
        for (name, value) in [
            (&b"x-a"[..], &b"a\r\nb: c"[..]),
            (b"x a", b"1"),
            (b"", b"1"),
            (b"x", b"a\0"),
        ] {
            assert!(!is_writable(name, value));
        }
    }
}
