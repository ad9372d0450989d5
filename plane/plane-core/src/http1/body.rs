//! Where a body ends: the same decoder for requests and responses.
//!
//! Invariant: it never takes a byte that belongs to the next message, and it buffers nothing: what
//! is not handed out stays in the caller's buffer.
//! Source: RFC 9112 §6.3, §7.1.

use super::{Framing, fields::names_framing, write::is_writable};
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// Longest chunk-size line, extensions included.
const SIZE_LINE_BYTES_MAX: usize = 1024;
/// All trailer lines together; they are read and dropped.
const TRAILER_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// A chunk size that is not hexadecimal, too large, or not ended by CRLF.
    BadChunk,
    /// Trailers longer than their bound.
    TrailersTooLong,
    /// A trailer that is no field line, or names what frames the message.
    BadTrailer,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    Data(Bytes),
    /// The buffer holds nothing more of this body; read on.
    NeedMore,
    End,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Plain bytes to go.
    Length(u64),
    UntilClose,
    SizeLine,
    ChunkData(u64),
    ChunkEnd,
    Trailer {
        taken: usize,
    },
    Done,
}

#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
}

impl BodyDecoder {
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::SizeLine,
            Framing::UntilClose => State::UntilClose,
        };
        BodyDecoder { state }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the sender's close is a proper end here.
    pub fn may_end_by_close(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Done)
    }

    /// Bytes still to come, where the framing tells.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(n) => Some(n),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// The next piece of the body at the front of `buf`.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, BodyError> {
        loop {
            match self.state {
                State::Done => return Ok(Decoded::End),
                State::UntilClose if buf.is_empty() => return Ok(Decoded::NeedMore),
                State::UntilClose => return Ok(Decoded::Data(buf.split().freeze())),
                State::Length(left) => return Ok(self.plain(buf, left)),
                State::ChunkData(left) => return Ok(self.chunk(buf, left)),
                State::SizeLine => {
                    match take_line(buf, SIZE_LINE_BYTES_MAX).map_err(|()| BodyError::BadChunk)? {
                        None if !may_become_size(buf) => return Err(BodyError::BadChunk),
                        None => return Ok(Decoded::NeedMore),
                        Some(line) => {
                            self.state = match chunk_size(&line)? {
                                0 => State::Trailer { taken: 0 },
                                size => State::ChunkData(size),
                            }
                        }
                    }
                }
                State::ChunkEnd => match buf.len() {
                    0 => return Ok(Decoded::NeedMore),
                    1 if buf[0] == b'\r' => return Ok(Decoded::NeedMore),
                    _ if buf.starts_with(b"\r\n") => {
                        buf.advance(2);
                        self.state = State::SizeLine;
                    }
                    _ => return Err(BodyError::BadChunk),
                },
                State::Trailer { taken } => {
                    let room = TRAILER_BYTES_MAX.saturating_sub(taken);
                    match take_line(buf, room).map_err(|()| BodyError::TrailersTooLong)? {
                        None if !may_become_trailer(buf) => return Err(BodyError::BadTrailer),
                        None => return Ok(Decoded::NeedMore),
                        Some(line) if line.is_empty() => self.state = State::Done,
                        Some(line) if !is_trailer(&line) => return Err(BodyError::BadTrailer),
                        Some(line) => {
                            self.state = State::Trailer {
                                taken: taken + line.len() + 2,
                            }
                        }
                    }
                }
            }
        }
    }

    fn plain(&mut self, buf: &mut BytesMut, left: u64) -> Decoded {
        if buf.is_empty() {
            return Decoded::NeedMore;
        }
        let take = left.min(buf.len() as u64);
        self.state = if take == left {
            State::Done
        } else {
            State::Length(left - take)
        };
        Decoded::Data(buf.split_to(take as usize).freeze())
    }

    fn chunk(&mut self, buf: &mut BytesMut, left: u64) -> Decoded {
        if buf.is_empty() {
            return Decoded::NeedMore;
        }
        let take = left.min(buf.len() as u64);
        let data = buf.split_to(take as usize).freeze();
        if take < left {
            self.state = State::ChunkData(left - take);
        } else if buf.starts_with(LAST_CHUNK) {
            // The usual end in one step, so that the caller learns it with the last piece.
            buf.advance(LAST_CHUNK.len());
            self.state = State::Done;
        } else {
            self.state = State::ChunkEnd;
        }
        Decoded::Data(data)
    }
}

const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// One line without its CRLF; `Err` when it is longer than `bytes_max` or ends in a bare LF.
fn take_line(buf: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, ()> {
    match memchr(b'\n', buf) {
        None if buf.len() > bytes_max => Err(()),
        None => Ok(None),
        Some(lf) if lf == 0 || buf[lf - 1] != b'\r' || lf > bytes_max => Err(()),
        Some(lf) => {
            let mut line = buf.split_to(lf + 1);
            line.truncate(lf - 1);
            Ok(Some(line.freeze()))
        }
    }
}

/// Whether a line that has not ended yet may still be one of a chunk's size, so that nobody waits for the end
/// of one that cannot.
fn may_become_size(start: &[u8]) -> bool {
    start.is_empty() || chunk_size(start.strip_suffix(b"\r").unwrap_or(start)).is_ok()
}

/// The same of a trailer, or of the empty line behind the last one.
fn may_become_trailer(start: &[u8]) -> bool {
    match start.strip_suffix(b"\r") {
        Some(line) => line.is_empty() || is_trailer(line),
        None if memchr(b':', start).is_some() => is_trailer(start),
        None => start.is_empty() || is_writable(start, b""),
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, BodyError> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let blanks = line[digits..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t'));
    let rest = &line[digits + blanks.count()..];
    // A lone CR, or another control byte, is where parsers part ways.
    let is_plain = rest.iter().all(|b| !b.is_ascii_control() || *b == b'\t');
    if digits == 0 || digits > 15 || !is_plain || !(rest.is_empty() || rest[0] == b';') {
        return Err(BodyError::BadChunk);
    }
    Ok(line[..digits].iter().fold(0, |n, b| n << 4 | hex_value(*b)))
}

/// Whether every reader takes this line for one field, and for one that frames nothing.
///
/// A reader that ends lines at a bare CR, or goes on past a blank, would find another message in it.
/// Source: RFC 9110 §6.5.1; RFC 9112 §2.2, §5.1, §7.1.2.
fn is_trailer(line: &[u8]) -> bool {
    let Some(colon) = memchr(b':', line) else {
        return false;
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    is_writable(name, value) && !name.eq_ignore_ascii_case(b"host") && !names_framing(name)
}

fn hex_value(digit: u8) -> u64 {
    u64::from(match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    })
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
