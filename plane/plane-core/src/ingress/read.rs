//! Reads one request off a connection: its head within its time, then its body within its bounds.

use super::{door::Door, watch::Watch};
use crate::{
    exchange::Problem,
    http1::{BodyDecoder, Decoded, Framing, Refused, RequestHead, RequestParser},
};
use bytes::{Bytes, BytesMut};
use std::{io, pin::Pin};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// The buffer grows by this much at least, and by no more than this on a client's word alone.
const READ_BYTES: usize = 8 * 1024;
const TRUSTED_LENGTH_BYTES_MAX: u64 = 1024 * 1024;

pub(super) enum Next {
    Request(Box<RequestHead>),
    /// Nothing came, or the other side closed between two requests.
    Closed,
    Refused(Refused),
}

pub(super) async fn fill<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
) -> io::Result<usize> {
    if buf.capacity() - buf.len() < READ_BYTES / 2 {
        buf.reserve(READ_BYTES);
    }
    std::future::poll_fn(|cx| tokio_util::io::poll_read_buf(Pin::new(&mut *io), cx, buf)).await
}

/// The next head. A fresh connection has as long for its first byte as for a whole head.
pub(super) async fn next_head<IO>(
    io: &mut IO,
    buf: &mut BytesMut,
    door: &Door,
    is_fresh: bool,
    fin: &mut Watch,
) -> Next
where
    IO: AsyncRead + Unpin,
{
    if buf.is_empty() {
        let wait = if is_fresh && door.spec.idle_within.is_some() {
            Some(door.spec.head_within)
        } else {
            door.spec.idle_within
        };
        let first = tokio::select! {
            biased;
            read = within(wait, fill(io, buf)) => read,
            () = door.closing.cancelled() => return Next::Closed,
        };
        match first {
            Some(Ok(n)) if n > 0 => {}
            _ => return Next::Closed,
        }
    }
    match timeout(door.spec.head_within, whole_head(io, buf, fin)).await {
        Ok(next) => next,
        Err(_) => Next::Refused(Refused {
            status: 408,
            reason: "head_timeout",
        }),
    }
}

async fn within<F: Future>(limit: Option<std::time::Duration>, future: F) -> Option<F::Output> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

async fn whole_head<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
    fin: &mut Watch,
) -> Next {
    let mut parser = RequestParser::default();
    loop {
        match parser.parse(buf) {
            Ok(Some(head)) => return Next::Request(Box::new(head)),
            Err(refused) => return Next::Refused(refused),
            Ok(None) => {}
        }
        match fill(io, buf).await {
            Ok(0) if buf.is_empty() => return Next::Closed,
            Ok(0) => {
                fin.note_fin();
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

/// The body, or what is wrong with it. `None` when the connection died.
pub(super) async fn body<IO>(
    io: &mut IO,
    buf: &mut BytesMut,
    head: &RequestHead,
    door: &Door,
    fin: &mut Watch,
) -> Option<Result<Bytes, Problem>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let limit = match door.spec.body_bytes_max {
        0 => u64::MAX,
        max => max,
    };
    if let Framing::Length(length) = head.framing {
        if length > limit {
            return Some(Err(Problem::TooLarge));
        }
        if buf.len() as u64 >= length {
            return Some(Ok(buf.split_to(length as usize).freeze()));
        }
    }
    if head.expects_continue && buf.is_empty() {
        io.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
        io.flush().await.ok()?;
    }
    let reading = async {
        match head.framing {
            Framing::Length(length) => sized(io, buf, length, fin).await,
            _ => chunked(io, buf, limit, fin).await,
        }
    };
    match timeout(door.spec.body_within, reading).await {
        Ok(read) => read,
        Err(_) => Some(Err(Problem::Slow)),
    }
}

async fn sized<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
    length: u64,
    fin: &mut Watch,
) -> Option<Result<Bytes, Problem>> {
    while (buf.len() as u64) < length {
        buf.reserve((length - buf.len() as u64).min(TRUSTED_LENGTH_BYTES_MAX) as usize);
        if fill(io, buf).await.ok()? == 0 {
            fin.note_fin();
            return Some(Err(Problem::Incomplete));
        }
    }
    Some(Ok(buf.split_to(length as usize).freeze()))
}

async fn chunked<IO: AsyncRead + Unpin>(
    io: &mut IO,
    buf: &mut BytesMut,
    limit: u64,
    fin: &mut Watch,
) -> Option<Result<Bytes, Problem>> {
    let (mut decoder, mut whole) = (BodyDecoder::new(Framing::Chunked), BytesMut::new());
    loop {
        match decoder.decode(buf) {
            Ok(Decoded::Data(piece)) => {
                if whole.len() as u64 + piece.len() as u64 > limit {
                    return Some(Err(Problem::TooLarge));
                }
                whole.extend_from_slice(&piece);
            }
            Ok(Decoded::End) => return Some(Ok(whole.freeze())),
            Ok(Decoded::NeedMore) => {
                if fill(io, buf).await.ok()? == 0 {
                    fin.note_fin();
                    return Some(Err(Problem::Incomplete));
                }
            }
            Err(_) => return Some(Err(Problem::BadChunk)),
        }
    }
}
