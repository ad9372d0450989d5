//! How the link is set up: every limit of it, in one place.

use std::time::Duration;

use super::{
    behaviour::LinkLimits,
    conn::OWN_STREAMS_MAX,
    swarm::NEGOTIATING_MAX,
    yamux::{ACK_BACKLOG, EXTRA_PARTS, MuxConfig, OWN_STREAMS, WINDOW_BYTES},
};

/// Inbound connections in all, pending ones included.
pub const CONNECTIONS_MAX: usize = 4096;
/// Inbound connections per IPv4 address or IPv6 /56; loopback is free.
pub const CONNS_PER_IP_MAX: usize = 32;
/// Streams of one connection for which the extra suffices when all have a wider window from their start: as
/// many as a router keeps between requests, since kept streams keep their windows too.
const WIDE_STREAMS: usize = 256;

/// How the link is set up. `new` gives the defaults; every field may be changed.
///
/// One connection can make this side hold at most (`inbound_served` + `inbound_waiting` + 32 + own open streams) x 256 KiB
/// plus `window_extra_bytes` of unread data, so who serves strangers keeps both small.
#[derive(Clone)]
pub struct PeersConfig {
    /// The content of the key file: 68 bytes.
    pub identity: Vec<u8>,
    /// Streams this side may hold open on one connection to a peer of our own kind.
    pub streams_max: usize,
    /// Inbound streams of one connection that are handed out at once; more of them wait.
    pub inbound_served: usize,
    /// Inbound streams of one connection that may wait for that; one more is reset.
    pub inbound_waiting: usize,
    /// Inbound streams of all connections that wait to be received.
    pub inbound_queue: usize,
    pub conns_per_ip: usize,
    pub connections_max: usize,
    /// A peer that dials in is a stranger until it is welcomed: it holds next to nothing, and is cut off when it has
    /// not been welcomed by then. None: everybody is welcome.
    pub welcome_within: Option<Duration>,
    /// Unread bytes an inbound stream may hold from its start: what a large body needs on a long link. More
    /// than 256 KiB comes out of `window_extra_bytes`.
    pub inbound_window_bytes: usize,
    /// Unread bytes by which the windows of one connection may grow in all, for long distances.
    pub window_extra_bytes: usize,
    /// Payload of one data frame at most.
    pub frame_bytes: usize,
    pub ping_every: Duration,
    pub ping_within: Duration,
    /// From the first byte of TCP to the agreed muxer, in both directions.
    pub connect_within: Duration,
    /// A stream the peer has not taken up by then is given up.
    pub open_within: Duration,
}

impl PeersConfig {
    pub fn new(identity: Vec<u8>) -> Self {
        let mux = MuxConfig::default();
        Self {
            identity,
            streams_max: OWN_STREAMS_MAX,
            inbound_served: 1024,
            // All that can wait legitimately: negotiating, and not yet taken up.
            inbound_waiting: NEGOTIATING_MAX + ACK_BACKLOG,
            inbound_queue: 64,
            conns_per_ip: CONNS_PER_IP_MAX,
            connections_max: CONNECTIONS_MAX,
            welcome_within: None,
            inbound_window_bytes: mux.inbound_window_bytes,
            window_extra_bytes: mux.window_extra_bytes,
            frame_bytes: mux.frame_bytes,
            // A peer that stands still is given up between every + 2 within and 2 every + 2 within: 12.5 to 15 s.
            ping_every: Duration::from_millis(2500),
            ping_within: Duration::from_secs(5),
            connect_within: Duration::from_secs(15),
            open_within: Duration::from_secs(10),
        }
    }

    /// Gives inbound streams this window from their start, and the extra that this takes.
    pub fn widen(&mut self, inbound_window_bytes: usize) {
        self.inbound_window_bytes = inbound_window_bytes;
        let extra_each = inbound_window_bytes.saturating_sub(WINDOW_BYTES);
        let extra = (WIDE_STREAMS + EXTRA_PARTS) * extra_each;
        self.window_extra_bytes = self.window_extra_bytes.max(extra);
    }

    pub(super) fn mux(&self) -> MuxConfig {
        MuxConfig {
            inbound_max: self.inbound_served + self.inbound_waiting + OWN_STREAMS,
            inbound_window_bytes: self.inbound_window_bytes,
            window_extra_bytes: self.window_extra_bytes,
            frame_bytes: self.frame_bytes,
            ..MuxConfig::default()
        }
    }

    pub(super) fn limits(&self) -> LinkLimits {
        LinkLimits {
            streams_max: self.streams_max,
            inbound_served: self.inbound_served,
            conns_per_ip: self.conns_per_ip,
            connections_max: self.connections_max,
            welcome_within: self.welcome_within,
            open_within: self.open_within,
        }
    }
}
