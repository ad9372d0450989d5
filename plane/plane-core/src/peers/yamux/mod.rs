//! Many streams over one connection: libp2p's `StreamMuxer`, speaking `/yamux/1.0.0`.
//!
//! `frame` is what stands on the wire, `window` and `round_trip` how much may come, `session` and `state`
//! the streams, `turns` who of them may write when the socket is slow, `incoming` what the peer's frames
//! change, `pace` how often, `driver` the task that reads and writes, `stream` what the callers hold. Limits hurt one stream
//! instead of the connection, a reset is a read error, all who wait are woken when the connection ends, and
//! a close takes a bounded time. Which streams may be opened, and how many, is decided by `conn`.
//! Source: yamux specification (hashicorp/yamux, spec.md); wire.md 5.5.

mod driver;
mod frame;
mod incoming;
mod pace;
mod round_trip;
mod session;
mod state;
mod stream;
mod turns;
mod window;

use std::{
    future::{Future, Ready, ready},
    io, iter,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use libp2p::core::{
    muxing::{StreamMuxer, StreamMuxerEvent},
    upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade, UpgradeInfo},
};
use tokio::time::Sleep;

use super::guests::Trust;

pub use session::{ACK_BACKLOG, EXTRA_PARTS};
pub use stream::Substream;
pub use window::WINDOW_BYTES;

use driver::Driver;
use session::{Session, Shared, lock};

/// Room for the streams of ping and identify beside those that are counted.
pub const OWN_STREAMS: usize = 32;
/// Streams a stranger may hold open: its two requests, and identify, its push and ping twice over.
pub const STRANGER_STREAMS_MAX: usize = 8;

/// The muxer's limits, per connection.
#[derive(Clone, Debug)]
pub struct MuxConfig {
    /// Streams the peer may hold open; one more is reset, and nothing else happens.
    pub inbound_max: usize,
    /// Unread bytes a stream of the peer may hold from its start, as far as the extra allows it.
    pub inbound_window_bytes: usize,
    /// Unread bytes by which all windows together may grow above 256 KiB each.
    pub window_extra_bytes: usize,
    /// Payload of a data frame at most; larger frames make small streams wait.
    pub frame_bytes: usize,
    /// Time after which a close no longer waits for a peer that does not read.
    pub close_within: Duration,
    /// Whether the peer has been welcomed, where it has yet to be; until then it holds next to nothing.
    pub stranger: Option<Trust>,
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self {
            inbound_max: 4096,
            inbound_window_bytes: WINDOW_BYTES,
            window_extra_bytes: 64 << 20,
            frame_bytes: 16 << 10,
            close_within: Duration::from_secs(1),
            stranger: None,
        }
    }
}

/// Which end of the connection this is: it decides who gives the odd numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Dialer,
    Listener,
}

impl UpgradeInfo for MuxConfig {
    type Info = &'static str;
    type InfoIter = iter::Once<&'static str>;

    fn protocol_info(&self) -> Self::InfoIter {
        iter::once("/yamux/1.0.0")
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> InboundConnectionUpgrade<C> for MuxConfig {
    type Output = Muxer;
    type Error = io::Error;
    type Future = Ready<io::Result<Muxer>>;

    fn upgrade_inbound(self, io: C, _: &'static str) -> Self::Future {
        ready(Ok(Muxer::new(io, self, Side::Listener)))
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> OutboundConnectionUpgrade<C>
    for MuxConfig
{
    type Output = Muxer;
    type Error = io::Error;
    type Future = Ready<io::Result<Muxer>>;

    fn upgrade_outbound(self, io: C, _: &'static str) -> Self::Future {
        ready(Ok(Muxer::new(io, self, Side::Dialer)))
    }
}

/// The streams of one connection, whose bytes are moved by a task of its own.
///
/// That task ends with the connection, and at once when the muxer is dropped.
pub struct Muxer {
    session: Shared,
    close_within: Duration,
    close_by: Option<Pin<Box<Sleep>>>,
}

impl Drop for Muxer {
    fn drop(&mut self) {
        lock(&self.session).abandon();
    }
}

impl Muxer {
    /// Must be called inside a tokio runtime.
    pub(super) fn new<C>(io: C, config: MuxConfig, side: Side) -> Self
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let close_within = config.close_within;
        let session = Arc::new(Mutex::new(Session::new(config, side)));
        tokio::spawn(Driver::new(io, session.clone()));
        Self {
            session,
            close_within,
            close_by: None,
        }
    }

    fn stream(&self, id: u32) -> Substream {
        Substream::new(id, self.session.clone())
    }
}

impl StreamMuxer for Muxer {
    type Substream = Substream;
    type Error = io::Error;

    fn poll_inbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Substream>> {
        let accepted = lock(&self.session).poll_accept(cx);
        accepted.map(|id| Ok(self.stream(id)))
    }

    fn poll_outbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Substream>> {
        let opened = lock(&self.session).poll_open(cx);
        opened.map_ok(|id| self.stream(id))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if lock(&this.session).poll_close(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let within = this.close_within;
        let close_by = this
            .close_by
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        // A peer that reads no more is not waited for; dropping the muxer ends the connection below.
        close_by.as_mut().poll(cx).map(Ok)
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        lock(&self.session).poll_failure(cx).map(Err)
    }
}
