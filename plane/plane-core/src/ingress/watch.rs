//! Watches the client's end of a connection while its request is being answered.

use super::serve::Who;
use bytes::BytesMut;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::AsyncRead;
use tokio_util::{io::poll_read_buf, sync::WaitForCancellationFutureOwned};

/// Pipelined bytes held back while a request runs. What a client sends beyond is dropped, and its
/// connection ends with the answer under way: only who reads on sees it leave.
pub(super) const HELD_BACK_BYTES_MAX: usize = 64 * 1024;

/// Reads in one poll: whoever sends without a pause must not keep its own answer from being heard.
const READS_MAX: usize = 16;

/// What tells that the other side has gone: end of input from a client, a reset or the loss of the
/// link from a peer. A peer's own FIN says nothing: originals send it right behind the request.
///
/// Source: wire.md §6.1, §8.6; technical-notes.md 'HTTP over it'.
pub struct Watch {
    is_peer: bool,
    has_fin: bool,
    is_flooded: bool,
    link_closed: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Watch {
    pub fn new(who: &Who) -> Self {
        let link_closed = who
            .link
            .as_ref()
            .map(|conn| Box::pin(conn.closed.clone().cancelled_owned()));
        Watch {
            is_peer: who.link.is_some(),
            has_fin: false,
            is_flooded: false,
            link_closed,
        }
    }

    pub fn is_peer(&self) -> bool {
        self.is_peer
    }

    pub fn has_fin(&self) -> bool {
        self.has_fin
    }

    /// More came than was held back, so what follows the request under way is lost.
    pub fn is_flooded(&self) -> bool {
        self.is_flooded
    }

    /// Input has ended for good; nothing more can be learnt from reading.
    pub fn note_fin(&mut self) {
        self.has_fin = true;
    }

    /// Ready when nobody is there any more. Bytes that come meanwhile are kept in `buf`.
    pub fn poll_gone<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        buf: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut reads = 0;
        while !self.has_fin {
            if reads == READS_MAX {
                cx.waker().wake_by_ref();
                break;
            }
            reads += 1;
            if buf.len() >= HELD_BACK_BYTES_MAX {
                self.is_flooded = true;
            }
            if self.is_flooded {
                buf.clear();
            }
            if buf.capacity() == buf.len() {
                buf.reserve(1024);
            }
            match poll_read_buf(Pin::new(&mut *io), cx, buf) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) if self.is_peer => self.has_fin = true,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(_)) => {}
            }
        }
        match &mut self.link_closed {
            Some(closed) => closed.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, task::Waker};
    use tokio::io::ReadBuf;

    /// Has always more, as a client on a fast link has.
    struct Endless;

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            room.put_slice(&[b'x'; 1024][..room.remaining().min(1024)]);
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_client_that_never_pauses_gives_way_and_holds_no_more_than_the_bound() {
        let mut watch = Watch::new(&Who::client("203.0.113.9:1".into()));
        let mut buf = BytesMut::new();
        for _ in 0..100 {
            let polled = watch.poll_gone(
                &mut Endless,
                &mut buf,
                &mut Context::from_waker(Waker::noop()),
            );
            assert!(polled.is_pending());
            assert!(buf.len() < 2 * HELD_BACK_BYTES_MAX);
        }
        assert!(watch.is_flooded());
    }
}
