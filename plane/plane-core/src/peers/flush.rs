//! When are written bytes handed to the socket? Once per pass of the connection, one pass late.
//!
//! yamux flushes after every frame, which costs one Noise frame and one system call each. So yamux writes
//! into `LateIo`, whose flush does nothing, and the muxer flushes through `Flusher` when yamux has no more
//! to do. The first such moment only books another pass: streams that are ready too then join the same
//! flush. Bytes are never held back longer than that one pass. Reading is passed through untouched.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};

struct Wire<C> {
    io: C,
    /// Something was written since the last complete flush.
    dirty: bool,
    /// yamux wanted to write and found no room.
    held_back: bool,
}

type Shared<C> = Arc<Mutex<Wire<C>>>;

// Only one task ever polls a connection, so the lock is never waited for; a panic elsewhere leaves it usable.
fn lock<C>(wire: &Shared<C>) -> MutexGuard<'_, Wire<C>> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end yamux reads from and writes to.
pub(super) struct LateIo<C>(Shared<C>);

/// The muxer's end: decides when the bytes leave.
pub(super) struct Flusher<C> {
    wire: Shared<C>,
    /// The extra pass has been spent, or a flush has begun: the next call flushes without waiting.
    waited: bool,
}

pub(super) fn late<C>(io: C) -> (LateIo<C>, Flusher<C>) {
    let wire = Arc::new(Mutex::new(Wire {
        io,
        dirty: false,
        held_back: false,
    }));
    (
        LateIo(wire.clone()),
        Flusher {
            wire,
            waited: false,
        },
    )
}

impl<C: AsyncWrite + Unpin> Flusher<C> {
    /// Flushes what is due. True: a write that was held back has room now, so yamux must be polled again.
    ///
    /// With `now` false the first call after a write only wakes the task for one more pass.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>, now: bool) -> io::Result<bool> {
        let mut wire = lock(&self.wire);
        if !wire.dirty {
            return Ok(false);
        }
        if !now && !self.waited && !wire.held_back {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Ok(false);
        }
        match Pin::new(&mut wire.io).poll_flush(cx) {
            Poll::Ready(done) => {
                done?;
                wire.dirty = false;
                self.waited = false;
                Ok(std::mem::take(&mut wire.held_back))
            }
            Poll::Pending => {
                self.waited = true;
                Ok(false)
            }
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for LateIo<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).io).poll_read(cx, buf)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for LateIo<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = lock(&self.0);
        let written = Pin::new(&mut wire.io).poll_write(cx, buf);
        match written {
            Poll::Ready(_) => wire.dirty = true,
            Poll::Pending => wire.held_back = true,
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).io).poll_close(cx)
    }
}
