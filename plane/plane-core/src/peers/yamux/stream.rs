//! One stream of a connection.
//!
//! Reading: FIN is `Ok(0)`; a reset or a lost connection is `ConnectionReset`, after the bytes that came
//! before it. Writing to a stream that is gone is `ConnectionReset` too. Closing sends FIN; dropping a
//! stream without that sends RST, or FIN where the peer has sent its own.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};

use super::session::{Shared, lock};

/// One stream of a `Muxer`.
pub struct Substream {
    id: u32,
    session: Shared,
}

impl Substream {
    pub(super) fn new(id: u32, session: Shared) -> Self {
        Self { id, session }
    }
}

impl Drop for Substream {
    fn drop(&mut self) {
        lock(&self.session).remove(self.id);
    }
}

impl AsyncRead for Substream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        lock(&self.session).poll_read(self.id, into, cx)
    }
}

impl AsyncWrite for Substream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.session).poll_write(self.id, from, cx)
    }

    // What is written leaves with the driver's next turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.session).finish(self.id);
        Poll::Ready(Ok(()))
    }
}
