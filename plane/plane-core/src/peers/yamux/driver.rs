//! The one task that reads and writes a connection.
//!
//! Each frame that left by itself would cost one Noise frame and one system call. So a driver that was
//! woken by a stream lets all who are ready run first, and then sends what they have written together.
//! One that was woken by the socket does not wait.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;

use super::{
    frame::{HEADER_BYTES, Header},
    incoming::{Part, closed_by_peer},
    session::{OUT_BYTES_MAX, Shared, lock},
};

const READ_BYTES: usize = 16 << 10;
/// Reads after which others have their turn, and the sockets are asked: 64 KiB.
const READS_MAX: usize = 4;

/// An output buffer that a burst of answers has made larger than this is not kept.
const KEPT_BYTES_MAX: usize = 2 * OUT_BYTES_MAX;

pub(super) struct Driver<C> {
    io: C,
    session: Shared,
    /// The frames that are on their way, and how much of them has gone.
    sending: Vec<u8>,
    sent: usize,
    needs_flush: bool,
    /// The socket takes no more for now.
    is_stalled: bool,
    has_waited: bool,
    room: Box<[u8]>,
    filled: usize,
    part: Part,
}

impl<C> Driver<C> {
    pub fn new(io: C, session: Shared) -> Self {
        Driver {
            io,
            session,
            sending: Vec::new(),
            sent: 0,
            needs_flush: false,
            is_stalled: false,
            has_waited: false,
            room: vec![0; READ_BYTES].into(),
            filled: 0,
            part: Part::default(),
        }
    }
}

impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        let mut session = lock(&self.session);
        if !session.is_ended {
            session.end(Ok(()));
        }
    }
}

impl<C> Unpin for Driver<C> {}

impl<C: AsyncRead + AsyncWrite + Unpin> Future for Driver<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.waits_for_others(cx) {
            return Poll::Pending;
        }
        let ended = ready!(this.drive(cx));
        if ended.is_err() {
            // Why it ends may be among the frames; whether it arrives is the peer's luck.
            let _ = this.send(cx);
        }
        lock(&this.session).end(ended);
        Poll::Ready(())
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Driver<C> {
    /// Streams have written, and others may be about to: true once for each time that this is so.
    fn waits_for_others(&mut self, cx: &mut Context<'_>) -> bool {
        let session = lock(&self.session);
        let has_frames = !session.out.is_empty() && !self.is_stalled;
        if session.wants_frames || !has_frames || session.is_closing || session.is_abandoned {
            return false;
        }
        self.has_waited = !self.has_waited;
        if self.has_waited {
            // Calls this task again when all that are ready have run and the sockets have been asked.
            let _ = pin!(yield_now()).poll(cx);
        }
        self.has_waited
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_waited = false;
        self.is_stalled = self.has_stalled(cx)?;
        let has_more = self.receive(cx)?;
        if !self.is_stalled {
            // Credit, and what else answers the peer.
            self.is_stalled = self.has_stalled(cx)?;
        }
        let mut session = lock(&self.session);
        if session.is_abandoned {
            return Poll::Ready(Ok(()));
        }
        match &mut session.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        if has_more {
            drop(session);
            // A wake-up alone would bring this task back before anybody else's socket is looked at.
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        if !session.out.is_empty() && !self.is_stalled {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        session.wants_frames = !self.is_stalled;
        if session.is_closing && !self.is_stalled {
            drop(session);
            return Pin::new(&mut self.io).poll_close(cx);
        }
        Poll::Pending
    }

    /// Sends. A peer that has gone may have said all it had to, so that is taken in first.
    fn has_stalled(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match self.send(cx) {
            Ok(sent) => Ok(sent.is_pending()),
            Err(error) => Err(self.receive(cx).err().unwrap_or(error)),
        }
    }

    /// Writes all frames there are, and flushes; pending while the socket takes no more.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            if self.sent == self.sending.len() {
                self.sending.clear();
                if self.sending.capacity() > KEPT_BYTES_MAX {
                    self.sending = Vec::new();
                }
                self.sent = 0;
                if !lock(&self.session).take_frames(&mut self.sending) {
                    break;
                }
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.sending[self.sent..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(bytes) => self.sent += bytes,
                Poll::Pending => return Ok(Poll::Pending),
            }
            self.needs_flush = true;
        }
        if self.needs_flush {
            if Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
                return Ok(Poll::Pending);
            }
            self.needs_flush = false;
        }
        Ok(Poll::Ready(()))
    }

    /// Takes in what is there; true when there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            let read = Pin::new(&mut self.io).poll_read(cx, &mut self.room[self.filled..])?;
            match read {
                Poll::Ready(0) => return Err(closed_by_peer()),
                Poll::Ready(bytes) => self.filled += bytes,
                Poll::Pending => return Ok(false),
            }
            self.take_in()?;
        }
        Ok(true)
    }

    fn take_in(&mut self) -> io::Result<()> {
        let mut session = lock(&self.session);
        session.note_welcome();
        let mut rest = &self.room[..self.filled];
        loop {
            if self.part.left > 0 {
                let (bytes, after) = rest.split_at(rest.len().min(self.part.left));
                if bytes.is_empty() {
                    break;
                }
                session.data(&mut self.part, bytes);
                rest = after;
            } else if let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
                let header = Header::decode(header).map_err(|what| session.broken(what))?;
                self.part = session.frame(header)?;
                rest = after;
            } else {
                break;
            }
        }
        let left = rest.len();
        let taken = self.filled - left;
        self.room.copy_within(taken..self.filled, 0);
        self.filled = left;
        Ok(())
    }
}
