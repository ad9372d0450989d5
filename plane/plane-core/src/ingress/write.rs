//! Writes one reply: a whole one in as few writes as can be, a streamed one as its pieces come.

use super::{door::Door, watch::Watch};
use crate::{
    exchange::{BreakKind, Chunk, Ending, StreamBody},
    http1::write::{LAST_CHUNK, put_chunk},
    seldom::Seldom,
};
use bytes::{Buf, Bytes, BytesMut};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::{Instant, Sleep, sleep, timeout, timeout_at},
};
use tokio_util::io::poll_write_buf;

/// Pieces that are ready together go out in one write of about this size.
const COALESCED_BYTES: usize = 64 * 1024;
/// A body up to this is copied behind its head.
const JOIN_BYTES_MAX: usize = 16 * 1024;
/// A whole reply is taken at least so fast, on top of the time for one write; else its reader only holds it up.
const TAKEN_BYTES_PER_S_MIN: f64 = 8.0 * 1024.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    Broken(BreakKind),
    /// The other side is gone, or takes nothing any more.
    Gone,
    /// Gone too, but it had been given all that makes the answer.
    GoneServed,
}

/// Writes a reply that is whole. A reader may be slow, but not as slow as it likes.
pub(super) async fn whole<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    mut head: BytesMut,
    mut body: Bytes,
    door: &Door,
) -> Sent {
    if body.len() <= JOIN_BYTES_MAX {
        head.extend_from_slice(&body);
        body = Bytes::new();
    }
    let mut out = head.freeze().chain(body);
    let takes_s = out.remaining() as f64 / TAKEN_BYTES_PER_S_MIN;
    let taken_by = Instant::now() + door.spec.write_within + Duration::from_secs_f64(takes_s);
    while out.has_remaining() {
        let writing = poll_fn(|cx| poll_write_buf(Pin::new(&mut *io), cx, &mut out));
        // Nothing taken for so long, or nothing ever again.
        let by = taken_by.min(Instant::now() + door.spec.write_within);
        if !matches!(timeout_at(by, writing).await, Ok(Ok(n)) if n > 0) {
            return Sent::Gone;
        }
    }
    match timeout(door.spec.write_within, io.flush()).await {
        Ok(Ok(())) => Sent::Whole,
        _ => Sent::Gone,
    }
}

/// The client's side of a connection while a stream goes out on it.
pub(super) struct Line<'a, IO> {
    pub io: &'a mut IO,
    pub held_back: &'a mut BytesMut,
    pub watch: &'a mut Watch,
    pub door: &'a Door,
}

/// Passes a streamed body on until it ends, breaks off, or nobody is there to read it.
pub(super) async fn stream<IO: AsyncRead + AsyncWrite + Unpin>(
    line: Line<'_, IO>,
    head: BytesMut,
    is_chunked: bool,
    body: &mut StreamBody,
    ending: &mut Ending,
) -> Sent {
    let Line {
        io,
        held_back,
        watch,
        door,
    } = line;
    let mut pipe = Pipe {
        out: head,
        is_chunked,
        end: None,
        stall: None,
        is_dirty: false,
        data_left: 0,
    };
    let mut leaving = Seldom::default();
    poll_fn(|cx| {
        // A body that has nothing now will call; only one that was left because of enough goes on.
        let mut has_more = true;
        loop {
            if has_more {
                has_more = pipe.take_in(body, ending, cx);
            }
            match pipe.put_out(io, door, cx) {
                Poll::Ready(Step::Again) => {}
                Poll::Ready(Step::Over(Sent::Gone)) => return Poll::Ready(pipe.gone(body)),
                Poll::Ready(Step::Over(sent)) => return Poll::Ready(sent),
                Poll::Pending => break,
            }
        }
        if leaving.is_due(cx) {
            let waker = leaving.waker();
            let cx = &mut Context::from_waker(&waker);
            if watch.poll_gone(io, held_back, cx).is_ready() {
                return Poll::Ready(pipe.gone(body));
            }
        }
        // Whoever waits for the client does not listen to the backend; a command is heard all the
        // same. What the client has not taken by then is not sent.
        if pipe.is_full() {
            return body.poll_called_off(cx).map(Sent::Broken);
        }
        Poll::Pending
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
    /// Bytes of `out` up to the end of the answer's last piece.
    data_left: usize,
}

impl Pipe {
    /// Takes what is there; false when the body has to call first.
    fn take_in(
        &mut self,
        body: &mut StreamBody,
        ending: &mut Ending,
        cx: &mut Context<'_>,
    ) -> bool {
        while self.end.is_none() && self.out.len() < COALESCED_BYTES {
            match body.poll_chunk(cx) {
                Poll::Pending => return false,
                Poll::Ready(Chunk::Data(piece)) => {
                    ending.passed(piece.len());
                    self.put(&piece);
                    self.data_left = self.out.len();
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
        self.end.is_none()
    }

    /// How it ended for one who left: whoever has the end mark waits for nothing more.
    ///
    /// Source: decisions.md 37.
    fn gone(&self, body: &StreamBody) -> Sent {
        match self.data_left == 0 && body.has_said_all() {
            true => Sent::GoneServed,
            false => Sent::Gone,
        }
    }

    fn is_full(&self) -> bool {
        self.end.is_none() && self.out.len() >= COALESCED_BYTES
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
        let progress = if !self.out.is_empty() {
            Pin::new(io).poll_write(cx, &self.out)
        } else if self.is_dirty {
            Pin::new(io).poll_flush(cx).map_ok(|()| 0)
        } else {
            return self
                .end
                .map_or(Poll::Pending, |sent| Poll::Ready(Step::Over(sent)));
        };
        match progress {
            Poll::Ready(Ok(0)) if !self.out.is_empty() => Poll::Ready(Step::Over(Sent::Gone)),
            Poll::Ready(Ok(n)) => {
                self.out.advance(n);
                self.data_left = self.data_left.saturating_sub(n);
                self.stall = None;
                self.is_dirty = n > 0;
                Poll::Ready(Step::Again)
            }
            Poll::Ready(Err(_)) => Poll::Ready(Step::Over(Sent::Gone)),
            Poll::Pending => {
                let within = door.spec.write_within;
                let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(within)));
                stall.as_mut().poll(cx).map(|()| Step::Over(Sent::Gone))
            }
        }
    }
}
