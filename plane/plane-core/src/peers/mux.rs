//! Many streams over one connection: libp2p's `StreamMuxer` over the `yamux` crate.
//!
//! Speaks `/yamux/1.0.0`. What it adds to yamux: limits that hurt one stream instead of the connection, a
//! reset that is a read error (`Substream`), one late flush per pass (`flush`), waking of all waiters when
//! the connection ends, and a close that takes a bounded time. Which streams may be opened, and how many,
//! is decided by `conn`; this module only makes sure yamux's own limit is never the one that is met.

use std::{
    collections::VecDeque,
    future::{Future, Ready, ready},
    io, iter,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use libp2p::core::{
    muxing::{StreamMuxer, StreamMuxerEvent},
    upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade, UpgradeInfo},
};
use tokio::time::Sleep;

use super::{
    flush::{Flusher, LateIo, late},
    substream::{Substream, Waiters},
};

/// Streams the peer may have opened that nobody has taken up yet: yamux's backlog on both sides.
pub const ACK_BACKLOG: usize = 256;
/// Room for the streams of ping and identify beside those that are counted.
pub const OWN_STREAMS: usize = 32;
/// Each stream may hold this much unread before its window has grown.
pub const WINDOW_BYTES: usize = yamux::DEFAULT_CREDIT as usize;

/// The muxer's limits, per connection.
#[derive(Clone, Debug)]
pub struct MuxConfig {
    /// Streams we open at most at once, as `Conn` counts them.
    pub outbound_max: usize,
    /// Streams the peer may hold open; one more is reset, and nothing else happens.
    pub inbound_max: usize,
    /// Unread bytes by which all windows together may grow above 256 KiB each.
    pub window_extra_bytes: usize,
    /// Payload of a data frame at most; larger frames make small streams wait.
    pub frame_bytes: usize,
    /// Time after which a close no longer waits for a peer that does not read.
    pub close_within: Duration,
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self {
            outbound_max: 1024,
            inbound_max: 4096,
            window_extra_bytes: 64 << 20,
            frame_bytes: 16 << 10,
            close_within: Duration::from_secs(1),
        }
    }
}

impl MuxConfig {
    fn yamux(&self) -> yamux::Config {
        // yamux ends the whole connection at its own limit, so that limit lies above all of ours.
        let streams = self.outbound_max + self.inbound_max + ACK_BACKLOG + OWN_STREAMS;
        let mut config = yamux::Config::default();
        // Each setter checks the window against the streams, so the window is out of the way first.
        config.set_max_connection_receive_window(None);
        config.set_max_num_streams(streams);
        config.set_max_connection_receive_window(Some(
            streams * WINDOW_BYTES + self.window_extra_bytes,
        ));
        config.set_split_send_size(self.frame_bytes);
        config
    }
}

impl UpgradeInfo for MuxConfig {
    type Info = &'static str;
    type InfoIter = iter::Once<&'static str>;

    fn protocol_info(&self) -> Self::InfoIter {
        iter::once("/yamux/1.0.0")
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> InboundConnectionUpgrade<C> for MuxConfig {
    type Output = Muxer<C>;
    type Error = io::Error;
    type Future = Ready<io::Result<Muxer<C>>>;

    fn upgrade_inbound(self, io: C, _: &'static str) -> Self::Future {
        ready(Ok(Muxer::new(io, self, yamux::Mode::Server)))
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> OutboundConnectionUpgrade<C>
    for MuxConfig
{
    type Output = Muxer<C>;
    type Error = io::Error;
    type Future = Ready<io::Result<Muxer<C>>>;

    fn upgrade_outbound(self, io: C, _: &'static str) -> Self::Future {
        ready(Ok(Muxer::new(io, self, yamux::Mode::Client)))
    }
}

/// The streams of one connection. Whoever polls it moves the bytes of all of them.
pub struct Muxer<C> {
    yamux: yamux::Connection<LateIo<C>>,
    flusher: Flusher<C>,
    waiters: Arc<Waiters>,
    inbound: VecDeque<Substream>,
    inbound_waker: Option<Waker>,
    inbound_max: usize,
    /// One clone per live inbound stream.
    inbound_live: Arc<()>,
    close_within: Duration,
    close_by: Option<Pin<Box<Sleep>>>,
}

impl<C> Unpin for Muxer<C> {}

impl<C> Drop for Muxer<C> {
    fn drop(&mut self) {
        self.waiters.end();
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Muxer<C> {
    pub(super) fn new(io: C, config: MuxConfig, mode: yamux::Mode) -> Self {
        let (io, flusher) = late(io);
        Self {
            yamux: yamux::Connection::new(io, config.yamux(), mode),
            flusher,
            waiters: Arc::default(),
            inbound: VecDeque::new(),
            inbound_waker: None,
            inbound_max: config.inbound_max,
            inbound_live: Arc::new(()),
            close_within: config.close_within,
            close_by: None,
        }
    }

    /// Takes up a stream the peer opened; above the cap it is dropped, which resets it alone.
    fn admit(&mut self, stream: yamux::Stream) {
        // The muxer itself holds one count.
        if Arc::strong_count(&self.inbound_live) > self.inbound_max {
            return;
        }
        let counted = Some(self.inbound_live.clone());
        self.inbound
            .push_back(Substream::new(stream, &self.waiters, counted));
        if let Some(waker) = self.inbound_waker.take() {
            waker.wake();
        }
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin + 'static> StreamMuxer for Muxer<C> {
    type Substream = Substream;
    type Error = io::Error;

    // Only hands out what `poll` has read; `poll` runs on every pass, whether or not streams are wanted.
    fn poll_inbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Substream>> {
        let this = self.get_mut();
        if let Some(stream) = this.inbound.pop_front() {
            return Poll::Ready(Ok(stream));
        }
        match &mut this.inbound_waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn poll_outbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Substream>> {
        let this = self.get_mut();
        this.yamux
            .poll_new_outbound(cx)
            .map_ok(|stream| Substream::new(stream, &this.waiters, None))
            .map_err(as_io)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let close_by = this.close_by.get_or_insert_with(|| {
            this.waiters.end();
            Box::pin(tokio::time::sleep(this.close_within))
        });
        if close_by.as_mut().poll(cx).is_ready() {
            // The peer reads no more; dropping the muxer ends the connection below.
            return Poll::Ready(Ok(()));
        }
        loop {
            let closed = this.yamux.poll_close(cx).map_err(as_io);
            if closed.is_ready() || !this.flusher.flush(cx, true)? {
                return closed;
            }
        }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        let this = self.get_mut();
        loop {
            match this.yamux.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => this.admit(stream),
                Poll::Ready(Some(Err(error))) => {
                    // The last frame may tell the peer why; whether it arrives is the peer's luck.
                    let _ = this.flusher.flush(cx, true);
                    return Poll::Ready(Err(as_io(error)));
                }
                Poll::Ready(None) => {
                    let text = "the peer closed the connection";
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        text,
                    )));
                }
                Poll::Pending => {
                    if !this.flusher.flush(cx, false)? {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

fn as_io(error: yamux::ConnectionError) -> io::Error {
    match error {
        yamux::ConnectionError::Io(error) => error,
        other => io::Error::other(other),
    }
}
