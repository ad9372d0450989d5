//! One yamux stream, with FIN and RST told apart and nobody left waiting when the connection ends.
//!
//! Reading: FIN is `Ok(0)`; a reset or a lost connection is `ConnectionReset`, after the bytes that came
//! before it. Writing to a stream that is gone is `ConnectionReset` too. Closing sends FIN. Dropping an open
//! stream sends RST; when the peer's FIN was received before, yamux can only answer with FIN.
//! yamux shows no difference in two cases, and then the milder one is assumed or the harder one reported:
//! a reset after our own FIN reads as EOF; a FIN followed by the loss of the connection, both before the
//! reader came round, reads as a reset.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::{
    io::{AsyncRead, AsyncWrite},
    task::AtomicWaker,
};

/// Who waits on the streams of one connection. yamux wakes nobody when we close the connection ourselves.
#[derive(Default)]
pub(super) struct Waiters {
    ended: AtomicBool,
    by_stream: Mutex<HashMap<u32, Arc<Waiting>>>,
}

#[derive(Default)]
struct Waiting {
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Waiters {
    /// Marks the connection as ended and wakes every reader and writer. Later calls find nobody.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let all = std::mem::take(
            &mut *self
                .by_stream
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for waiting in all.into_values() {
            waiting.reader.wake();
            waiting.writer.wake();
        }
    }

    fn add(&self, stream: u32) -> Arc<Waiting> {
        let waiting = Arc::<Waiting>::default();
        self.by_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(stream, waiting.clone());
        waiting
    }

    fn remove(&self, stream: u32) {
        self.by_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&stream);
    }

    /// The waker must be registered before this is asked, or `end` could slip in between.
    fn pending_unless_ended<T>(&self) -> Poll<io::Result<T>> {
        if self.ended.load(Ordering::Acquire) {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        } else {
            Poll::Pending
        }
    }
}

/// One stream of a `Muxer`.
pub struct Substream {
    stream: yamux::Stream,
    fin_received: bool,
    fin_sent: bool,
    waiting: Arc<Waiting>,
    waiters: Arc<Waiters>,
    /// Counts an inbound stream against the connection's cap for as long as it lives.
    _counted: Option<Arc<()>>,
}

impl Substream {
    pub(super) fn new(
        stream: yamux::Stream,
        waiters: &Arc<Waiters>,
        counted: Option<Arc<()>>,
    ) -> Self {
        Self {
            waiting: waiters.add(stream.id().val()),
            stream,
            fin_received: false,
            fin_sent: false,
            waiters: waiters.clone(),
            _counted: counted,
        }
    }

    /// What yamux calls the end of the stream: EOF, or a reset when no FIN explains it.
    fn end_of_stream(&mut self) -> io::Result<usize> {
        if self.stream.is_closed() && !self.fin_sent && !self.fin_received {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.fin_received = true;
        Ok(0)
    }
}

impl Drop for Substream {
    fn drop(&mut self) {
        self.waiters.remove(self.stream.id().val());
    }
}

impl AsyncRead for Substream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => {
                this.waiting.reader.register(cx.waker());
                this.waiters.pending_unless_ended()
            }
            Poll::Ready(Ok(0)) => Poll::Ready(this.end_of_stream()),
            Poll::Ready(read) => Poll::Ready(read.map_err(as_reset)),
        }
    }
}

impl AsyncWrite for Substream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write(cx, buf) {
            Poll::Pending => {
                this.waiting.writer.register(cx.waker());
                this.waiters.pending_unless_ended()
            }
            Poll::Ready(written) => Poll::Ready(written.map_err(as_reset)),
        }
    }

    // Flushing and closing wait only for room in the queue to the connection, whose end wakes them.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx).map_err(as_reset)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed_before = this.stream.is_closed();
        let closed = Pin::new(&mut this.stream).poll_close(cx).map_err(as_reset);
        if matches!(closed, Poll::Ready(Ok(()))) && !closed_before {
            this.fin_sent = true;
        }
        closed
    }
}

/// yamux says `WriteZero` for every stream that can no longer be written.
fn as_reset(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WriteZero {
        io::ErrorKind::ConnectionReset.into()
    } else {
        error
    }
}
