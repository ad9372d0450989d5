//! The framing guard: which request heads are let in, and how the body behind them is framed.
//!
//! Invariant: a head that passes can be read in one way only. Whatever two parsers might read
//! differently (two lengths, a length beside `Transfer-Encoding`, a bare LF, a folded line, blanks
//! before a colon) is refused, so no byte of one request can become the start of another.
//! Source: RFC 9112 §2.2, §6.3, §11.2; field-cases.md O-10; technical-notes.md 'hyper'.

use super::{
    CONNECTION_TOKENS_MAX, FIELDS_MAX, Fields, HEAD_BYTES_MAX, LINK_FIELDS_MAX, LINK_HEAD_BYTES_MAX,
};
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use std::mem::MaybeUninit;

/// How the body of a message is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
    /// Until the sender closes: responses only.
    UntilClose,
}

/// Why a head was refused: the status to answer with and a word for log and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> Refused {
    Refused {
        status: 400,
        reason,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct GuardLimits {
    pub head_bytes_max: usize,
    pub fields_max: usize,
}

impl GuardLimits {
    /// For what comes over a link: whoever sent it has let it in under its own limits.
    pub const LINK: GuardLimits = GuardLimits {
        head_bytes_max: LINK_HEAD_BYTES_MAX,
        fields_max: LINK_FIELDS_MAX,
    };
}

impl Default for GuardLimits {
    fn default() -> Self {
        GuardLimits {
            head_bytes_max: HEAD_BYTES_MAX,
            fields_max: FIELDS_MAX,
        }
    }
}

/// A request head that passed the guard.
#[derive(Clone, Debug)]
pub struct RequestHead {
    pub method: Bytes,
    /// Target as it came, without scheme and authority if it was in absolute form.
    pub path: Bytes,
    /// Behind the first `?`, empty when there is none.
    pub query: Bytes,
    pub fields: Fields,
    pub framing: Framing,
    /// HTTP/1.1 rather than 1.0.
    pub is_http11: bool,
    /// The connection may carry another request after this one.
    pub keep_alive: bool,
    pub expects_continue: bool,
}

/// Finds the end of one request head in a growing buffer and judges it.
#[derive(Debug, Default)]
pub struct RequestParser {
    limits: GuardLimits,
    /// Bytes of the buffer whose line ends have been looked at.
    scanned: usize,
    /// Start of the line that `scanned` stands in.
    line_start: usize,
    blank_lines: u32,
}

/// Empty lines tolerated before a request line. Source: RFC 9112 §2.2.
const LEADING_BLANK_LINES_MAX: u32 = 4;

/// Longest `Host` that is let in, port and all.
const HOST_BYTES_MAX: usize = 255;

impl RequestParser {
    pub fn new(limits: GuardLimits) -> Self {
        RequestParser {
            limits,
            ..RequestParser::default()
        }
    }

    /// Takes one whole head off the front of `buf`, or says that more bytes are needed.
    pub fn parse(&mut self, buf: &mut BytesMut) -> Result<Option<RequestHead>, Refused> {
        if self.scanned == 0 && !self.skip_blank_lines(buf)? {
            return Ok(None);
        }
        // Only what a head may be long is looked at, so that the verdict is the same however the
        // bytes were cut.
        let visible = buf.len().min(self.limits.head_bytes_max);
        let Some(end) = self.find_end(&buf[..visible])? else {
            return if buf.len() > visible {
                Err(too_large())
            } else {
                Ok(None)
            };
        };
        *self = RequestParser::new(self.limits);
        judge(buf.split_to(end).freeze(), self.limits.fields_max).map(Some)
    }

    /// Empty lines before a request line are dropped; false while the buffer may yet be one.
    fn skip_blank_lines(&mut self, buf: &mut BytesMut) -> Result<bool, Refused> {
        while buf.starts_with(b"\r\n") {
            self.blank_lines += 1;
            if self.blank_lines > LEADING_BLANK_LINES_MAX {
                return Err(bad("blank_lines"));
            }
            buf.advance(2);
        }
        Ok(!buf.is_empty() && &buf[..] != b"\r")
    }

    /// End of the empty line that closes the head. Every line must end in CRLF.
    fn find_end(&mut self, buf: &[u8]) -> Result<Option<usize>, Refused> {
        while let Some(at) = memchr(b'\n', &buf[self.scanned..]) {
            let lf = self.scanned + at;
            if lf == 0 || buf[lf - 1] != b'\r' {
                return Err(bad("bare_lf"));
            }
            let is_empty_line = lf - 1 == self.line_start;
            self.scanned = lf + 1;
            self.line_start = lf + 1;
            if is_empty_line {
                return Ok(Some(lf + 1));
            }
        }
        self.scanned = buf.len();
        Ok(None)
    }
}

const fn too_large() -> Refused {
    Refused {
        status: 431,
        reason: "head_too_large",
    }
}

fn judge(block: Bytes, fields_max: usize) -> Result<RequestHead, Refused> {
    let mut slots = [const { MaybeUninit::uninit() }; LINK_FIELDS_MAX];
    let room = fields_max.min(LINK_FIELDS_MAX);
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(&block, &mut slots[..room]) {
        // Anything else would mean that the two of us see the head end at different places.
        Ok(httparse::Status::Complete(end)) if end == block.len() => {}
        Ok(_) => return Err(bad("malformed_head")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refused {
                status: 431,
                reason: "too_many_fields",
            });
        }
        Err(httparse::Error::Version) => {
            return Err(Refused {
                status: 505,
                reason: "version",
            });
        }
        Err(_) => return Err(bad("malformed_head")),
    }
    // Complete parsing fills all three.
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(bad("malformed_head"));
    };
    let is_http11 = version == 1;
    let method = block.slice_ref(method.as_bytes());
    let (path, query) = split_target(&block, target, &method)?;
    let fields = Fields::new(block.clone(), parsed.headers);
    check_host(&fields, is_http11)?;
    if fields.connection_tokens() > CONNECTION_TOKENS_MAX {
        return Err(bad("connection_tokens"));
    }
    let framing = request_framing(&fields, is_http11)?;
    let keep_alive =
        !fields.connection_has("close") && (is_http11 || fields.connection_has("keep-alive"));
    let expects_continue = is_http11
        && fields
            .get("expect")
            .is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"));
    Ok(RequestHead {
        method,
        path,
        query,
        fields,
        framing,
        is_http11,
        keep_alive,
        expects_continue,
    })
}

/// Origin form and absolute form become path and query; `*` and authority form stay as they are.
fn split_target(block: &Bytes, target: &str, method: &[u8]) -> Result<(Bytes, Bytes), Refused> {
    let part = |s: &str| block.slice_ref(s.as_bytes());
    // Whoever reads it in another encoding than its sender sees another path.
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("target"));
    }
    if method == b"CONNECT" {
        return Ok((part(target), Bytes::new()));
    }
    let origin = behind_authority(target).unwrap_or(target);
    // A fragment never goes over the wire; who sends one means something else by it.
    if !(origin.is_empty() || origin.starts_with(['/', '?']) || origin == "*")
        || origin.contains('#')
    {
        return Err(bad("target"));
    }
    let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
    let path = match path {
        "" if origin.len() == target.len() => return Err(bad("target")),
        "" => Bytes::from_static(b"/"),
        path => part(path),
    };
    Ok((
        path,
        if query.is_empty() {
            Bytes::new()
        } else {
            part(query)
        },
    ))
}

/// What follows scheme and authority of a target in absolute form.
fn behind_authority(target: &str) -> Option<&str> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    Some(rest.find(['/', '?']).map_or("", |at| &rest[at..]))
}

/// Source: RFC 9112 §3.2.
fn check_host(fields: &Fields, is_http11: bool) -> Result<(), Refused> {
    match sole(fields, "host").map_err(|()| bad("host_repeated"))? {
        None if is_http11 => Err(bad("host_missing")),
        Some(host) if !is_host(host) => Err(bad("host_malformed")),
        _ => Ok(()),
    }
}

/// Whether nobody reads more into it than a name and a port: no path, no user, no list. May be empty.
fn is_host(host: &[u8]) -> bool {
    let is_no_part =
        |byte: &u8| byte.is_ascii_control() || matches!(byte, b' ' | b'/' | b'@' | b',');
    host.len() <= HOST_BYTES_MAX && !host.iter().any(is_no_part)
}

fn request_framing(fields: &Fields, is_http11: bool) -> Result<Framing, Refused> {
    let length = sole(fields, "content-length").map_err(|()| bad("content_length_repeated"))?;
    let coding =
        sole(fields, "transfer-encoding").map_err(|()| bad("transfer_encoding_repeated"))?;
    match (length, coding) {
        (Some(_), Some(_)) => Err(bad("length_and_encoding")),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
            if is_http11 {
                Ok(Framing::Chunked)
            } else {
                Err(bad("chunked_in_http10"))
            }
        }
        (None, Some(coding)) if memchr(b',', coding).is_some() => Err(bad("transfer_encoding")),
        (None, Some(_)) => Err(Refused {
            status: 501,
            reason: "transfer_encoding_unknown",
        }),
        (Some(text), None) => content_length(text)
            .map(Framing::Length)
            .ok_or(bad("content_length")),
        (None, None) => Ok(Framing::Length(0)),
    }
}

fn sole<'a>(fields: &'a Fields, name: &'a str) -> Result<Option<&'a [u8]>, ()> {
    let mut all = fields.all(name);
    let first = all.next();
    if all.next().is_some() {
        Err(())
    } else {
        Ok(first)
    }
}

/// Digits only: no sign, no list, no blanks inside.
pub(super) fn content_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
