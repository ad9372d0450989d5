//! Reads one request off a connection: its head within its time, then its body within its bounds.

use super::{door::Door, watch::Watch};
use crate::{
    bodies::Held,
    exchange::Problem,
    http1::{BodyDecoder, Decoded, Framing, GuardLimits, Refused, RequestHead, RequestParser},
};
use bytes::{Bytes, BytesMut};
use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout,
};

/// The buffer grows by this much at least, and by no more than this on a client's word alone.
const READ_BYTES: usize = 8 * 1024;
const TRUSTED_LENGTH_BYTES_MAX: u64 = 256 * 1024;

pub(super) enum Next {
    Request(Box<RequestHead>),
    /// Nothing came, or the other side closed between two requests.
    Closed,
    Refused(Refused),
}

/// The body, or what is wrong with it; `None` when the connection died.
pub(super) type Body = Option<Result<Bytes, Problem>>;

pub(super) async fn fill<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
) -> io::Result<usize> {
    if buf.capacity() - buf.len() < READ_BYTES / 2 {
        buf.reserve(READ_BYTES);
    }
    poll_fn(|cx| tokio_util::io::poll_read_buf(Pin::new(&mut *io), cx, buf)).await
}

/// Reads into a buffer that is only made when something is there: an idle connection keeps none.
fn poll_first<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = [const { MaybeUninit::uninit() }; READ_BYTES];
    let mut read = ReadBuf::uninit(&mut room);
    ready!(Pin::new(io).poll_read(cx, &mut read))?;
    let came = read.filled();
    if !came.is_empty() {
        *buf = BytesMut::with_capacity(READ_BYTES);
        buf.extend_from_slice(came);
    }
    Poll::Ready(Ok(came.len()))
}

/// The next head. A fresh connection has as long for its first byte as for a whole head.
pub(super) async fn next_head<IO>(
    io: &mut IO,
    buf: &mut BytesMut,
    door: &Door,
    is_fresh: bool,
    limits: GuardLimits,
    watch: &mut Watch,
) -> Next
where
    IO: AsyncRead + Unpin,
{
    if buf.is_empty() {
        let wait = match door.spec.idle_within {
            Some(_) if is_fresh => Some(door.spec.head_within),
            idle_within => idle_within,
        };
        // What it holds besides may be a large body's.
        *buf = BytesMut::new();
        let first = tokio::select! {
            biased;
            read = within(wait, poll_fn(|cx| poll_first(io, buf, cx))) => read,
            () = door.closing.cancelled() => return Next::Closed,
        };
        match first {
            Some(Ok(n)) if n > 0 => {}
            _ => return Next::Closed,
        }
    }
    match timeout(door.spec.head_within, whole_head(io, buf, limits, watch)).await {
        Ok(next) => next,
        Err(_) => Next::Refused(Refused {
            status: 408,
            reason: "head_timeout",
        }),
    }
}

async fn within<F: Future>(limit: Option<Duration>, future: F) -> Option<F::Output> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

async fn whole_head<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
    limits: GuardLimits,
    watch: &mut Watch,
) -> Next {
    let mut parser = RequestParser::new(limits);
    loop {
        match parser.parse(buf) {
            Ok(Some(head)) => return Next::Request(Box::new(head)),
            Err(refused) => return Next::Refused(refused),
            Ok(None) => {}
        }
        match fill(io, buf).await {
            Ok(0) if buf.is_empty() => return Next::Closed,
            Ok(0) => {
                watch.note_fin();
                return Next::Refused(Refused {
                    status: 400,
                    reason: "head_incomplete",
                });
            }
            Ok(_) => {}
            Err(_) => return Next::Closed,
        }
    }
}

pub(super) async fn body<IO>(
    io: &mut IO,
    buf: &mut BytesMut,
    head: &RequestHead,
    door: &Door,
    (held, bytes_max): (&mut Held, u64),
    watch: &mut Watch,
) -> Body
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let bytes_max = match bytes_max {
        0 => u64::MAX,
        max => max,
    };
    if matches!(head.framing, Framing::Length(length) if length > bytes_max) {
        return Some(Err(Problem::TooLarge));
    }
    let wants_word = head.expects_continue && buf.is_empty();
    // The word would make it send what nobody will look at. Source: RFC 9110 §10.1.1.
    if wants_word && !door.wants_body_of(head) {
        return Some(Err(Problem::Unasked));
    }
    let mut reading = Reading {
        io,
        buf,
        held,
        watch,
    };
    let reading_all = async {
        if wants_word {
            reading.say_continue().await.ok()?;
        }
        match head.framing {
            Framing::Length(length) => reading.sized(length).await,
            _ => reading.chunked(bytes_max).await,
        }
    };
    let read = tokio::select! {
        biased;
        read = timeout(door.spec.body_within, reading_all) => read.unwrap_or(Some(Err(Problem::Slow))),
        () = door.closing.cancelled() => Some(Err(Problem::Stopping)),
    };
    if !matches!(read, Some(Ok(_))) {
        held.release();
    }
    // The body shares its memory with what stands behind it, however little that is.
    *buf = if buf.is_empty() {
        BytesMut::new()
    } else {
        BytesMut::from(&buf[..])
    };
    read
}

struct Reading<'a, IO> {
    io: &'a mut IO,
    buf: &'a mut BytesMut,
    held: &'a mut Held,
    watch: &'a mut Watch,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Reading<'_, IO> {
    async fn say_continue(&mut self) -> io::Result<()> {
        self.io.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        self.io.flush().await
    }

    async fn sized(&mut self, length: u64) -> Body {
        loop {
            let left = length.saturating_sub(self.buf.len() as u64);
            if !self.held.grow_to((length - left) as usize) {
                return Some(Err(Problem::Overloaded));
            }
            if left == 0 {
                // The bound on bodies keeps it far below what an address can count.
                return Some(Ok(self.buf.split_to(length as usize).freeze()));
            }
            self.buf
                .reserve(left.min(TRUSTED_LENGTH_BYTES_MAX) as usize);
            if fill(self.io, self.buf).await.ok()? == 0 {
                return self.incomplete();
            }
        }
    }

    async fn chunked(&mut self, bytes_max: u64) -> Body {
        let (mut decoder, mut whole) = (BodyDecoder::new(Framing::Chunked), BytesMut::new());
        loop {
            match decoder.decode(self.buf) {
                Ok(Decoded::Data(piece)) => {
                    let bytes = whole.len() + piece.len();
                    if bytes as u64 > bytes_max {
                        return Some(Err(Problem::TooLarge));
                    }
                    if !self.held.grow_to(bytes) {
                        return Some(Err(Problem::Overloaded));
                    }
                    whole.extend_from_slice(&piece);
                }
                Ok(Decoded::End) => return Some(Ok(whole.freeze())),
                Ok(Decoded::NeedMore) => {
                    if fill(self.io, self.buf).await.ok()? == 0 {
                        return self.incomplete();
                    }
                }
                Err(_) => return Some(Err(Problem::BadChunk)),
            }
        }
    }

    fn incomplete(&mut self) -> Body {
        self.watch.note_fin();
        Some(Err(Problem::Incomplete))
    }
}
