//! Response heads as an engine or an agent sends them, and how their bodies are framed.

use super::{
    CONNECTION_TOKENS_MAX, FIELDS_MAX, Fields, Framing, HEAD_BYTES_MAX, guard::content_length,
};
use bytes::BytesMut;
use memchr::{memchr, memchr2_iter, memmem};
use std::mem::MaybeUninit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    Malformed,
    TooLarge,
    /// More interim answers than anybody sends.
    TooManyInterim,
}

#[derive(Clone, Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub fields: Fields,
    pub framing: Framing,
    /// The connection may be used again once the body is read.
    pub keep_alive: bool,
}

impl ResponseHead {
    /// The length it names, whether or not that many bytes follow.
    pub fn content_length(&self) -> Option<u64> {
        self.fields.get("content-length").and_then(content_length)
    }

    pub fn is_event_stream(&self) -> bool {
        self.fields
            .get("content-type")
            .is_some_and(|v| memmem::find(&v.to_ascii_lowercase(), b"text/event-stream").is_some())
    }

    /// Compressed: nothing in it can be read, and nothing written into it.
    pub fn is_coded(&self) -> bool {
        let coding = self.fields.get("content-encoding");
        coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity"))
    }

    /// Whether anything says what kind of body this is.
    pub fn is_labelled(&self) -> bool {
        self.fields.get("content-type").is_some()
    }

    /// One JSON text, readable as it comes: not compressed, and no sequence of texts.
    pub fn is_plain_json(&self) -> bool {
        let kind = self.fields.get("content-type").map(|value| {
            let essence = value.split(|b| *b == b';').next().unwrap_or_default();
            essence.trim_ascii().to_ascii_lowercase()
        });
        !self.is_coded()
            && kind.is_some_and(|kind| kind == b"application/json" || kind.ends_with(b"+json"))
    }
}

/// Interim (1xx) answers skipped before the real one.
const INTERIM_MAX: u32 = 16;

/// What every answer begins with; anything else is refused before more of it is waited for.
const SIGNATURE: &[u8] = b"HTTP/1.";
/// Bytes up to and with the status.
const STATUS_AT_END: usize = "HTTP/1.1 200".len();

#[derive(Debug, Default)]
pub struct ResponseParser {
    scanned: usize,
    interim: u32,
    is_to_head: bool,
}

impl ResponseParser {
    /// An answer to `HEAD` has no body, whatever its fields say.
    pub fn new(is_to_head: bool) -> Self {
        ResponseParser {
            is_to_head,
            ..ResponseParser::default()
        }
    }

    /// Takes one final head off the front of `buf`; interim answers are skipped.
    pub fn parse(&mut self, buf: &mut BytesMut) -> Result<Option<ResponseHead>, ResponseError> {
        loop {
            let known = buf.len().min(SIGNATURE.len());
            if buf[..known] != SIGNATURE[..known] {
                return Err(ResponseError::Malformed);
            }
            let from = self.scanned.saturating_sub(3);
            let visible = buf.len().min(HEAD_BYTES_MAX);
            let found = memmem::find(&buf[from..visible], b"\r\n\r\n");
            let end = found.map_or(visible, |at| from + at + 4);
            if !has_whole_line_ends(&buf[..end], self.scanned) {
                return Err(ResponseError::Malformed);
            }
            let Some(at) = found else {
                if self.may_tell_more(&buf[..visible]) && is_hopeless(&buf[..visible]) {
                    return Err(ResponseError::Malformed);
                }
                self.scanned = visible;
                return if buf.len() > visible {
                    Err(ResponseError::TooLarge)
                } else {
                    Ok(None)
                };
            };
            self.scanned = 0;
            let head = read(buf.split_to(from + at + 4), self.is_to_head)?;
            if !(100..200).contains(&head.status) {
                return Ok(Some(head));
            }
            self.interim += 1;
            if self.interim > INTERIM_MAX || head.status == 101 {
                return Err(ResponseError::TooManyInterim);
            }
        }
    }

    /// Whether the bytes that came last can show that this is no head: each line is looked at once it has
    /// ended, and the status as it comes, so that a head in small pieces does not cost its square.
    fn may_tell_more(&self, head: &[u8]) -> bool {
        self.scanned < STATUS_AT_END || memchr(b'\n', &head[self.scanned..]).is_some()
    }
}

/// Whether every line ends with CRLF; bytes before `scanned` were looked at, but for what follows them.
fn has_whole_line_ends(head: &[u8], scanned: usize) -> bool {
    let from = scanned.saturating_sub(1);
    memchr2_iter(b'\r', b'\n', &head[from..]).all(|at| {
        let at = from + at;
        match head[at] {
            b'\r' => head.get(at + 1).is_none_or(|next| *next == b'\n'),
            _ => at > 0 && head[at - 1] == b'\r',
        }
    })
}

/// Whether no bytes that could follow make a head of this.
fn is_hopeless(start: &[u8]) -> bool {
    let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let read = config.parse_response_with_uninit_headers(&mut parsed, start, &mut slots);
    !matches!(read, Ok(httparse::Status::Partial))
}

fn read(block: BytesMut, is_to_head: bool) -> Result<ResponseHead, ResponseError> {
    let block = block.freeze();
    let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        &block,
        &mut slots,
    ) {
        // Anything else would mean that the two of us see the head end at different places.
        Ok(httparse::Status::Complete(end)) if end == block.len() => {}
        _ => return Err(ResponseError::Malformed),
    }
    let (Some(status @ 100..), Some(version)) = (parsed.code, parsed.version) else {
        return Err(ResponseError::Malformed);
    };
    let fields = Fields::new(block.clone(), parsed.headers);
    if fields.connection_tokens() > CONNECTION_TOKENS_MAX {
        return Err(ResponseError::Malformed);
    }
    let framing = match framing(&fields, status)? {
        _ if is_to_head => Framing::Length(0),
        framing => framing,
    };
    // Chunks from a 1.0 server are read, but its connection is not trusted with another request.
    let may_keep = match version {
        1 => true,
        _ => fields.connection_has("keep-alive") && framing != Framing::Chunked,
    };
    let keep_alive = may_keep && !fields.connection_has("close") && framing != Framing::UntilClose;
    Ok(ResponseHead {
        status,
        fields,
        framing,
        keep_alive,
    })
}

/// Source: RFC 9112 §6.3. A length beside `Transfer-Encoding` is refused rather than guessed at.
fn framing(fields: &Fields, status: u16) -> Result<Framing, ResponseError> {
    if (100..200).contains(&status) || status == 204 || status == 304 {
        return Ok(Framing::Length(0));
    }
    let mut lengths = fields.all("content-length");
    let length = lengths.next();
    if lengths.any(|other| Some(other) != length) {
        return Err(ResponseError::Malformed);
    }
    let mut codings = fields.all("transfer-encoding");
    let coding = codings.next();
    if codings.next().is_some() {
        return Err(ResponseError::Malformed);
    }
    match (length, coding) {
        (None, None) => Ok(Framing::UntilClose),
        (Some(text), None) => content_length(text)
            .map(Framing::Length)
            .ok_or(ResponseError::Malformed),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        _ => Err(ResponseError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(wire: &[u8]) -> Result<Option<ResponseHead>, ResponseError> {
        ResponseParser::default().parse(&mut BytesMut::from(wire))
    }

    #[test]
    fn interim_answers_are_skipped() {
        let head =
            parse(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap()
                .unwrap();
        assert_eq!(
            (head.status, head.framing, head.keep_alive),
            (200, Framing::Length(2), true)
        );
    }

    #[test]
    fn a_head_split_anywhere_is_found() {
        let wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for cut in 0..wire.len() {
            let (mut parser, mut buf) = (ResponseParser::default(), BytesMut::from(&wire[..cut]));
            assert!(parser.parse(&mut buf).unwrap().is_none());
            buf.extend_from_slice(&wire[cut..]);
            assert_eq!(
                parser.parse(&mut buf).unwrap().unwrap().framing,
                Framing::Chunked
            );
        }
    }

    #[test]
    fn without_length_the_body_ends_with_the_connection() {
        let head = parse(b"HTTP/1.1 200 OK\r\n\r\n").unwrap().unwrap();
        assert_eq!(
            (head.framing, head.keep_alive),
            (Framing::UntilClose, false)
        );
    }

    #[test]
    fn a_switch_of_protocol_or_two_lengths_is_an_error() {
        assert!(parse(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n").is_err());
        assert!(
            parse(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").is_err()
        );
        assert!(
            parse(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
                .is_err()
        );
        let twice = "Transfer-Encoding: chunked\r\n".repeat(2);
        assert!(parse(format!("HTTP/1.1 200 OK\r\n{twice}\r\n").as_bytes()).is_err());
        assert!(parse(b"NOT HTTP\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 099 Low\r\n\r\n").is_err());
    }

    #[test]
    fn garbage_is_told_before_its_head_would_be_whole() {
        for wire in [
            &b"SSH-2.0-x\r\n"[..],
            b"h",
            b"HTTP/2",
            b"\r\n",
            b"\0",
            b"\x15\x03\x03\0\x02\x02\x46",
            b"\0\0\x12\x04\0\0\0\0\0",
            b"HTTP/1.7 ",
            b"HTTP/1.1 ok",
            b"HTTP/1.1 200 OK\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\n",
            b"HTTP/1.1 200 OK\rContent-Length: 5\r\r",
            b"HTTP/1.1 200 OK\r\nno field\r\n",
            b"HTTP/1.1 200 OK\r\nA : b\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n",
        ] {
            assert!(parse(wire).is_err(), "{wire:?}");
            let (mut parser, mut buf) = (ResponseParser::default(), BytesMut::new());
            let byte_by_byte = wire.iter().any(|byte| {
                buf.extend_from_slice(&[*byte]);
                parser.parse(&mut buf).is_err()
            });
            assert!(byte_by_byte, "{wire:?}");
        }
        for wire in [
            &b"HTTP/1"[..],
            b"HTTP/1.1 20",
            b"HTTP/1.1 200\r\n",
            b"HTTP/1.0 200 \r\nA: b\r",
        ] {
            assert!(parse(wire).unwrap().is_none(), "{wire:?}");
        }
    }

    #[test]
    fn a_line_that_ends_with_lf_alone_is_an_error_however_the_head_comes() {
        let wire = b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n";
        assert!(parse(wire).is_err());
    }

    #[test]
    fn a_coding_other_than_chunked_is_an_error() {
        for coding in ["identity", "gzip", "gzip, chunked", ""] {
            let wire = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\nhello");
            assert!(parse(wire.as_bytes()).is_err(), "{coding}");
        }
    }

    #[test]
    fn a_head_that_another_reader_would_end_sooner_is_an_error() {
        let wire = b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello\r\n\r\n";
        assert!(parse(wire).is_err());
    }

    #[test]
    fn json_is_known_by_its_type_unless_it_is_compressed_or_a_sequence() {
        for (fields, is_json) in [
            ("Content-Type: application/json\r\n", true),
            ("Content-Type: Application/JSON; charset=utf-8\r\n", true),
            ("Content-Type: application/problem+json\r\n", true),
            ("Content-Type: application/x-ndjson\r\n", false),
            ("Content-Type: text/plain; of=application/json\r\n", false),
            (
                "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
                false,
            ),
            ("", false),
        ] {
            let wire = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let head = parse(wire.as_bytes()).unwrap().unwrap();
            assert_eq!(head.is_plain_json(), is_json, "{fields}");
        }
    }

    #[test]
    fn an_answer_to_head_has_no_body_and_leaves_the_connection_usable() {
        for fields in [
            "Content-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\n",
            "",
        ] {
            let wire = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let head = ResponseParser::new(true).parse(&mut BytesMut::from(wire.as_bytes()));
            let head = head.unwrap().unwrap();
            assert_eq!((head.framing, head.keep_alive), (Framing::Length(0), true));
        }
    }

    #[test]
    fn chunks_of_a_1_0_server_are_read_but_its_connection_is_not_kept() {
        let fields = "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n";
        let head = parse(format!("HTTP/1.0 200 OK\r\n{fields}\r\n").as_bytes())
            .unwrap()
            .unwrap();
        assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, false));
    }
}
