//! Writes one reply: a whole one in as few writes as can be, a streamed one as its pieces come.

use super::{door::Door, watch::Watch};
use crate::{
    exchange::{BreakKind, Chunk, Ending, StreamBody},
    http1::write::{LAST_CHUNK, put_chunk},
};
use bytes::{Buf, Bytes, BytesMut};
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::{Sleep, sleep, timeout},
};

/// Pieces that are ready together go out in one write of about this size.
const COALESCED_BYTES: usize = 64 * 1024;
/// A body up to this is copied behind its head.
const JOIN_BYTES_MAX: usize = 16 * 1024;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    Broken(BreakKind),
    /// The other side is gone, or takes nothing any more.
    Gone,
}

pub(super) async fn whole<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    mut head: BytesMut,
    body: Bytes,
    door: &Door,
) -> Sent {
    let writing = async {
        if body.len() <= JOIN_BYTES_MAX {
            head.extend_from_slice(&body);
            io.write_all(&head).await?;
        } else {
            io.write_all(&head).await?;
            // Piece by piece, so that a slow but living reader is not taken for a dead one.
            for piece in body.chunks(COALESCED_BYTES) {
                stalled(timeout(door.spec.write_within, io.write_all(piece)).await)?;
            }
        }
        io.flush().await
    };
    // The bound is on standing still; a whole body has that much time for each of its pieces.
    let pieces = 1 + body.len() / COALESCED_BYTES;
    match timeout(door.spec.write_within * (1 + pieces as u32), writing).await {
        Ok(Ok(())) => Sent::Whole,
        _ => Sent::Gone,
    }
}

fn stalled<T>(result: Result<io::Result<T>, tokio::time::error::Elapsed>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Passes a streamed body on until it ends, breaks off, or nobody is there to read it.
pub(super) async fn stream<IO>(
    io: &mut IO,
    held_back: &mut BytesMut,
    watch: &mut Watch,
    head: BytesMut,
    is_chunked: bool,
    body: &mut StreamBody,
    ending: &mut Ending,
    door: &Door,
) -> Sent
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut pipe = Pipe {
        out: head,
        is_chunked,
        end: None,
        stall: None,
        is_dirty: false,
    };
    poll_fn(|cx| {
        loop {
            pipe.take_in(body, ending, cx);
            match pipe.put_out(io, door, cx) {
                Poll::Ready(Step::Again) => {}
                Poll::Ready(Step::Over(sent)) => return Poll::Ready(sent),
                Poll::Pending => return watch.poll_gone(io, held_back, cx).map(|()| Sent::Gone),
            }
        }
    })
    .await
}

enum Step {
    Again,
    Over(Sent),
}

struct Pipe {
    out: BytesMut,
    is_chunked: bool,
    end: Option<Sent>,
    stall: Option<Pin<Box<Sleep>>>,
    /// Something was written since the last flush.
    is_dirty: bool,
}

impl Pipe {
    fn take_in(&mut self, body: &mut StreamBody, ending: &mut Ending, cx: &mut Context<'_>) {
        while self.end.is_none() && self.out.len() < COALESCED_BYTES {
            match body.poll_chunk(cx) {
                Poll::Pending => return,
                Poll::Ready(Chunk::Data(piece)) => {
                    ending.passed(piece.len());
                    self.put(&piece);
                }
                Poll::Ready(Chunk::End) => {
                    if self.is_chunked {
                        self.out.extend_from_slice(LAST_CHUNK);
                    }
                    self.end = Some(Sent::Whole);
                }
                Poll::Ready(Chunk::Broken(kind, last)) => {
                    self.put(&last);
                    self.end = Some(Sent::Broken(kind));
                }
            }
        }
    }

    fn put(&mut self, piece: &[u8]) {
        if self.is_chunked {
            put_chunk(&mut self.out, piece);
        } else {
            self.out.extend_from_slice(piece);
        }
    }

    fn put_out<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        door: &Door,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        if self.out.is_empty() {
            if self.is_dirty && Pin::new(&mut *io).poll_flush(cx).is_ready() {
                self.is_dirty = false;
            }
            return match self.end {
                Some(sent) if !self.is_dirty => Poll::Ready(Step::Over(sent)),
                _ => Poll::Pending,
            };
        }
        match Pin::new(io).poll_write(cx, &self.out) {
            Poll::Ready(Ok(n)) if n > 0 => {
                self.out.advance(n);
                self.stall = None;
                self.is_dirty = true;
                Poll::Ready(Step::Again)
            }
            Poll::Ready(_) => Poll::Ready(Step::Over(Sent::Gone)),
            Poll::Pending => {
                let stall = self
                    .stall
                    .get_or_insert_with(|| Box::pin(sleep(door.spec.write_within)));
                stall.as_mut().poll(cx).map(|()| Step::Over(Sent::Gone))
            }
        }
    }
}
