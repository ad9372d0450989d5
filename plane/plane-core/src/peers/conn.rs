//! One live connection to a peer, and the registry of the newest one per peer.
//!
//! `Conn::open` counts first and asks afterwards: at the cap it says `Full` at once, else it goes straight
//! to the connection's own task; the swarm task is not on the way. A slot is held from the request until
//! the stream is dropped, so a cancelled request that the peer has not yet answered still counts.
//! The cap depends on what the peer is: an original one resets what lies above its resource limits.
//! Source: wire.md 5.6, 5.7.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use libp2p::{Multiaddr, PeerId, swarm::ConnectionId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{guests::Trust, stream::LinkStream};

/// Streams at once to an original peer, or to one that has not said what it is.
pub const ORIGINAL_STREAMS_MAX: usize = 64;
/// Streams at once to a peer of our own kind, unless the configuration says otherwise.
pub const OWN_STREAMS_MAX: usize = 1024;
/// What the identify agent version of our own kind begins with; an original's begins `hivenet_router@`.
pub const OWN_AGENT_PREFIX: &str = "hivenet-router-py/";
/// Longer agent versions are cut: they are text from a peer.
const AGENT_VERSION_CHARS_MAX: usize = 128;

/// Why a stream could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The cap is reached; the peer counts as busy.
    Full,
    /// The connection has ended, or ended meanwhile.
    Gone,
    /// The peer does not speak `/http/1.1`.
    Unsupported,
    /// The peer did not take up the stream in time.
    Timeout,
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("all streams to this peer are in use"),
            Self::Gone => f.write_str("the connection to this peer has ended"),
            Self::Unsupported => f.write_str("the peer does not speak /http/1.1"),
            Self::Timeout => f.write_str("the peer did not take up the stream in time"),
            Self::Io(error) => write!(f, "the stream could not be opened: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Counts one stream of a connection; dropping it gives the place back.
pub struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request for a stream on its way to the connection's task.
pub struct OpenRequest {
    pub(super) slot: Slot,
    pub(super) reply: oneshot::Sender<Result<LinkStream, OpenError>>,
}

/// One live connection, usable from any task.
pub struct Conn {
    pub id: ConnectionId,
    pub peer: PeerId,
    pub remote: Multiaddr,
    /// True when this side dialled.
    pub dialed: bool,
    /// Cancelled as soon as the connection is known to end.
    pub closed: CancellationToken,
    pub(super) trust: Trust,
    agent_version: OnceLock<String>,
    streams_max: usize,
    cap_by_kind: AtomicUsize,
    cap_by_caller: AtomicUsize,
    live: Arc<AtomicUsize>,
    waiting: AtomicUsize,
    requests: mpsc::UnboundedSender<OpenRequest>,
}

/// Counts one inbound stream that waits to be served; dropping it ends the wait.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Conn {
    pub(super) fn new(
        (id, peer): (ConnectionId, PeerId),
        remote: Multiaddr,
        dialed: bool,
        streams_max: usize,
    ) -> (Self, mpsc::UnboundedReceiver<OpenRequest>) {
        // Unbounded, yet never longer than the cap: every request holds a slot.
        let (requests, asked) = mpsc::unbounded_channel();
        let conn = Self {
            id,
            peer,
            remote,
            dialed,
            closed: CancellationToken::new(),
            trust: Trust::of_guest(),
            agent_version: OnceLock::new(),
            streams_max,
            cap_by_kind: AtomicUsize::new(streams_max.min(ORIGINAL_STREAMS_MAX)),
            cap_by_caller: AtomicUsize::new(usize::MAX),
            live: Arc::default(),
            waiting: AtomicUsize::new(0),
            requests,
        };
        (conn, asked)
    }

    /// Whether the peer has yet to be welcomed.
    pub fn is_stranger(&self) -> bool {
        self.trust.is_stranger()
    }

    /// Whether an inbound stream waits for its place. Whoever holds one should not keep it while it idles.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(&self.waiting)
    }

    /// A new stream on this very connection; at the cap `Full` without waiting.
    pub async fn open(&self) -> Result<LinkStream, OpenError> {
        let slot = self.slot()?;
        let (reply, opened) = oneshot::channel();
        self.requests
            .send(OpenRequest { slot, reply })
            .map_err(|_| OpenError::Gone)?;
        opened.await.map_err(|_| OpenError::Gone)?
    }

    fn slot(&self) -> Result<Slot, OpenError> {
        if self.closed.is_cancelled() {
            return Err(OpenError::Gone);
        }
        let cap = self.cap();
        self.live
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |live| {
                (live < cap).then_some(live + 1)
            })
            .map(|_| Slot(self.live.clone()))
            .map_err(|_| OpenError::Full)
    }

    /// Lowers the number of streams at once; it never rises above what the peer's kind stands.
    pub fn set_cap(&self, streams: usize) {
        self.cap_by_caller.store(streams, Ordering::Relaxed);
    }

    /// Streams this side may hold open at once, as of now.
    pub fn cap(&self) -> usize {
        let by_kind = self.cap_by_kind.load(Ordering::Relaxed);
        by_kind.min(self.cap_by_caller.load(Ordering::Relaxed))
    }

    /// Streams this side has open or has asked for.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// What the peer says it is; `None` until identify has arrived.
    pub fn agent_version(&self) -> Option<&str> {
        self.agent_version.get().map(String::as_str)
    }

    /// Whether the peer has said that it is of our own kind.
    pub fn is_own_kind(&self) -> bool {
        let version = self.agent_version();
        version.is_some_and(|version| version.starts_with(OWN_AGENT_PREFIX))
    }

    /// Keeps the first agent version the peer gives and sets the cap by it. True: it was the first.
    pub(super) fn identified(&self, agent_version: &str) -> bool {
        let text = agent_version
            .chars()
            .take(AGENT_VERSION_CHARS_MAX)
            .collect();
        if self.agent_version.set(text).is_err() {
            return false;
        }
        // A stranger may well be built on the original's libraries, so only our own kind gets more.
        if agent_version.starts_with(OWN_AGENT_PREFIX) {
            self.cap_by_kind.store(self.streams_max, Ordering::Relaxed);
        }
        true
    }
}

/// The newest live connection of each peer. Cloneable; a look-up is one read lock and no waiting.
#[derive(Clone, Default)]
pub(super) struct Registry(Arc<RwLock<HashMap<PeerId, Arc<Conn>>>>);

impl Registry {
    pub(super) fn get(&self, peer: &PeerId) -> Option<Arc<Conn>> {
        let conns = self.0.read().unwrap_or_else(PoisonError::into_inner);
        conns.get(peer).cloned()
    }

    /// Makes `conn` the peer's newest and returns the one it takes the place of.
    pub(super) fn put(&self, conn: Arc<Conn>) -> Option<Arc<Conn>> {
        let mut conns = self.0.write().unwrap_or_else(PoisonError::into_inner);
        conns.insert(conn.peer, conn)
    }

    /// Takes the peer's connection out, if it is (still) the one with this id.
    pub(super) fn remove(&self, peer: &PeerId, id: ConnectionId) -> Option<Arc<Conn>> {
        let mut conns = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if conns.get(peer)?.id == id {
            conns.remove(peer)
        } else {
            None
        }
    }
}
