//! How does one request go out and its answer come in? On a connection that is kept, inside the caller's task, with the
//! body handed to a `Sink` as it is read. Invariant: an answer counts as whole only if its framing says it ended.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chunked::Chunked;

const HEAD_BYTES_MAX: usize = 64 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// Takes an answer's body.
pub trait Sink {
    /// Some bytes of the body.
    fn data(&mut self, bytes: &[u8]);
    /// One read has been handed over.
    fn turn(&mut self);
}

/// Ignores a body.
pub struct Unread;

impl Sink for Unread {
    fn data(&mut self, _: &[u8]) {}
    fn turn(&mut self) {}
}

/// An answer that came whole.
pub struct Answer {
    pub status: u16,
    pub body_bytes: u64,
    pub keep: bool,
}

/// Why no whole answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Before the answer's head was read.
    Connection,
    /// After it.
    Truncated,
}

enum Framing {
    Sized(usize),
    Chunked(Chunked),
    UntilClose,
}

struct Head {
    status: u16,
    framing: Framing,
    keep: bool,
    bytes: usize,
}

/// One kept connection.
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
}

impl Connection {
    pub async fn open(target: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(target)
            .await
            .map_err(|_| Failure::Connection)?;
        stream.set_nodelay(true).map_err(|_| Failure::Connection)?;
        Ok(Self {
            stream,
            input: BytesMut::new(),
        })
    }

    /// Sends `request` as it is and reads the answer to its end.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Answer, Failure> {
        self.stream
            .write_all(request)
            .await
            .map_err(|_| Failure::Connection)?;
        let mut head = self.read_head().await?;
        self.input.advance(head.bytes);
        let mut body_bytes = 0;
        loop {
            let ended = take_body(&mut head.framing, &mut self.input, sink, &mut body_bytes)?;
            sink.turn();
            if ended {
                break;
            }
            if self.read_more().await.map_err(|_| Failure::Truncated)? == 0 {
                match head.framing {
                    Framing::UntilClose => break,
                    _ => return Err(Failure::Truncated),
                }
            }
        }
        Ok(Answer {
            status: head.status,
            body_bytes,
            keep: head.keep,
        })
    }

    async fn read_more(&mut self) -> std::io::Result<usize> {
        self.input.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.input).await
    }

    async fn read_head(&mut self) -> Result<Head, Failure> {
        loop {
            if !self.input.is_empty()
                && let Some(head) = parse_head(&self.input)?
            {
                return Ok(head);
            }
            if self.input.len() > HEAD_BYTES_MAX {
                return Err(Failure::Connection);
            }
            match self.read_more().await {
                Ok(1..) => {}
                _ => return Err(Failure::Connection),
            }
        }
    }
}

/// Hands over what of the body is there; true when it has ended.
fn take_body(
    framing: &mut Framing,
    input: &mut BytesMut,
    sink: &mut impl Sink,
    body_bytes: &mut u64,
) -> Result<bool, Failure> {
    let mut count = |bytes: &[u8]| {
        *body_bytes += bytes.len() as u64;
        sink.data(bytes);
    };
    match framing {
        Framing::Sized(left) => {
            let take = input.len().min(*left);
            count(&input[..take]);
            input.advance(take);
            *left -= take;
            Ok(*left == 0)
        }
        Framing::Chunked(chunked) => {
            let used = chunked.feed(input, count).map_err(|_| Failure::Truncated)?;
            input.advance(used);
            Ok(chunked.done())
        }
        Framing::UntilClose => {
            count(input);
            input.clear();
            Ok(false)
        }
    }
}

fn parse_head(input: &[u8]) -> Result<Option<Head>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let bytes = match response.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Connection),
    };
    let status = response.code.unwrap_or_default();
    let mut head = Head {
        status,
        framing: Framing::UntilClose,
        keep: true,
        bytes,
    };
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            head.framing = Framing::Sized(value.parse().map_err(|_| Failure::Connection)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = Framing::Chunked(Chunked::default());
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.keep = !value.eq_ignore_ascii_case("close");
        }
    }
    head.keep &= !matches!(head.framing, Framing::UntilClose);
    Ok(Some(head))
}
