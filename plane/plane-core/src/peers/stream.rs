//! The streams as the rest of the plane sees them: tokio's `AsyncRead` and `AsyncWrite`.
//!
//! FIN is EOF, a reset or a lost connection is `ConnectionReset`; shutting down sends FIN, dropping without
//! it sends RST. Each stream owns what counts it, so that the count is right however the stream ends.
//! What is said over the stream is left to whoever holds it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead as _, AsyncWrite as _};
use libp2p::{Stream, core::upgrade::NegotiationError};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};

use super::conn::{Conn, Slot};

/// A stream this side opened. It fills one of the connection's slots until it is dropped.
pub struct LinkStream {
    stream: Stream,
    reads: ReadSize,
    _slot: Slot,
}

impl LinkStream {
    pub(super) fn new(stream: Stream, slot: Slot) -> Self {
        Self {
            stream,
            reads: ReadSize::default(),
            _slot: slot,
        }
    }
}

/// A stream the peer opened, with the connection it came on and its place among those served at once.
pub struct Inbound {
    pub conn: Arc<Conn>,
    stream: Stream,
    reads: ReadSize,
    _permit: OwnedSemaphorePermit,
}

impl Inbound {
    pub(super) fn new(conn: Arc<Conn>, stream: Stream, permit: OwnedSemaphorePermit) -> Self {
        Self {
            conn,
            stream,
            reads: ReadSize::default(),
            _permit: permit,
        }
    }
}

/// How much to ask a stream for: some more than it last gave. It fills plain memory only, which has
/// to be zeroed before each attempt, so asking for all there is room for costs more than reading.
struct ReadSize(usize);

const READ_BYTES_MIN: usize = 512;
const READ_BYTES_MAX: usize = 64 * 1024;

impl Default for ReadSize {
    fn default() -> Self {
        Self(READ_BYTES_MIN)
    }
}

impl ReadSize {
    fn note(&mut self, read: usize) {
        self.0 = (2 * read).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
    }
}

fn read(
    stream: &mut Stream,
    size: &mut ReadSize,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buf.remaining() == 0 {
        return Poll::Ready(Ok(()));
    }
    let wanted = buf.remaining().min(size.0);
    let read = ready!(Pin::new(stream).poll_read(cx, buf.initialize_unfilled_to(wanted)));
    let read = read.map_err(explain)?;
    size.note(read);
    buf.advance(read);
    Poll::Ready(Ok(()))
}

/// The protocol is proposed together with the first bytes, so a refusal shows only here.
fn explain(error: io::Error) -> io::Error {
    match error.get_ref() {
        Some(inner) if inner.is::<NegotiationError>() => io::Error::new(
            io::ErrorKind::Unsupported,
            "the peer does not speak /http/1.1",
        ),
        _ => error,
    }
}

macro_rules! stream_io {
    ($name:ty) => {
        impl AsyncRead for $name {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let Self { stream, reads, .. } = &mut *self;
                read(stream, reads, cx, buf)
            }
        }

        impl AsyncWrite for $name {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, buf)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_close(cx)
            }
        }
    };
}

stream_io!(LinkStream);
stream_io!(Inbound);
