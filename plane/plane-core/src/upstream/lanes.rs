//! The way to a destination: its kept connections first, a new one otherwise.

use super::{
    Outgoing, UpBody, UpConn, UpstreamIo,
    conn::NoHead,
    pool::{Pool, PoolLimits},
};
use crate::{
    exchange::{Failure, FailureKind, Target},
    http1::ResponseHead,
    peers::{Conn, OpenError, Peers},
};
use libp2p::PeerId;
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Time for a TCP connection to an HTTP server.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A plain HTTP server and the connections kept to it.
pub struct HttpUpstream {
    host: String,
    port: u16,
    pool: Arc<Pool>,
}

impl std::fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpUpstream({}:{})", self.host, self.port)
    }
}

impl HttpUpstream {
    fn new(host: String, port: u16, limits: PoolLimits) -> Self {
        HttpUpstream {
            host,
            port,
            pool: Arc::new(Pool::new(limits)),
        }
    }

    /// How often bytes of answers to forwarded requests have come; never goes back.
    pub fn times_heard(&self) -> u64 {
        self.pool.times_heard()
    }

    async fn connect(&self) -> Result<UpConn, Box<Failure>> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let failed = |why: &dyn std::fmt::Display| {
            Failure::new(
                FailureKind::Connect,
                format!("cannot connect to {}:{}: {why}", self.host, self.port),
            )
        };
        let stream = match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failed(&error)),
            Err(_) => {
                return Err(failed(&format_args!(
                    "no answer within {} s",
                    CONNECT_WITHIN.as_secs()
                )));
            }
        };
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Ok(UpConn::new(UpstreamIo::Tcp(stream)))
    }
}

struct PeerLane {
    conn: Arc<Conn>,
    pool: Arc<Pool>,
}

/// Finds the lane to a target; keeps the pools of the agents' links.
pub struct Lanes {
    peers: Peers,
    limits: PoolLimits,
    by_peer: Mutex<HashMap<PeerId, PeerLane>>,
    http: Mutex<Vec<Weak<HttpUpstream>>>,
}

/// Resolves when the link under a stream is gone; a TCP connection tells that by itself.
pub type LinkClosed = Pin<Box<WaitForCancellationFutureOwned>>;

/// The head of an answer, and its body still to come.
pub struct Answer {
    pub head: ResponseHead,
    pub body: UpBody,
    pub link_closed: Option<LinkClosed>,
}

/// What may be sent a second time, on a fresh connection, when a kept one breaks under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resend {
    /// Also what went out whole, and may have been carried out.
    #[default]
    Whole,
    /// Only what did not go out whole, as long as its link lives: all else is for whoever decides.
    Unsent,
    /// Nothing, and no kept connection is used in the first place.
    Never,
}

impl Resend {
    pub fn named(name: &[u8]) -> Option<Resend> {
        match name {
            b"whole" => Some(Resend::Whole),
            b"unsent" => Some(Resend::Unsent),
            b"never" => Some(Resend::Never),
            _ => None,
        }
    }
}

/// What is known of a request on its way, also where its sender gives it up half-way.
#[derive(Default)]
pub struct Trail {
    /// The link that it last went out on.
    link: Option<Arc<Conn>>,
    /// It went out whole, and the connection died before an answer was whole.
    pub is_taken: bool,
    /// That was a kept connection, and not a byte of an answer came.
    pub is_stale: bool,
}

impl Trail {
    fn goes_by(&mut self, lane: &Lane) {
        self.link = match lane {
            Lane::Peer { conn, .. } => Some(conn.clone()),
            Lane::Http(_) => None,
        };
        (self.is_taken, self.is_stale) = (false, false);
    }

    fn ends(&mut self, no_head: &NoHead, was_kept: bool) {
        self.is_taken = matches!(no_head, NoHead::Nothing(_) | NoHead::Partial(_));
        self.is_stale = was_kept && matches!(no_head, NoHead::Nothing(_));
    }

    /// Whether the very link that it went out on has ended, for whatever reason.
    pub fn is_link_closed(&self) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.closed.is_cancelled())
    }
}

enum Lane {
    Peer { conn: Arc<Conn>, pool: Arc<Pool> },
    Http(Arc<HttpUpstream>),
}

impl Lanes {
    pub fn new(peers: Peers, limits: PoolLimits) -> Self {
        Lanes {
            peers,
            limits,
            by_peer: Mutex::default(),
            http: Mutex::default(),
        }
    }

    /// A server to send to; its kept connections are aged with the others.
    pub fn http(&self, host: String, port: u16, limits: PoolLimits) -> Arc<HttpUpstream> {
        let upstream = Arc::new(HttpUpstream::new(host, port, limits));
        let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        http.push(Arc::downgrade(&upstream));
        upstream
    }

    /// Sends the request and gives the answer's head and body.
    ///
    /// A kept connection that dies before a byte of the answer was only stale: as far as `resend`
    /// allows, the request goes once more, on a fresh one. `trail` tells what became of the last.
    /// Source: technical-notes.md 'hyper'; field-cases.md O-09.
    pub async fn send(
        &self,
        target: &Target,
        request: &Outgoing,
        resend: Resend,
        trail: &mut Trail,
    ) -> Result<Answer, Box<Failure>> {
        let mut lane = self.lane(target)?;
        trail.goes_by(&lane);
        let kept = match resend {
            Resend::Never => None,
            _ => lane.pool().take().await,
        };
        if let Some(kept) = kept {
            let no_head = match lane.send(kept, request).await {
                Ok(answer) => return Ok(answer),
                Err(no_head) => no_head,
            };
            trail.ends(&no_head, true);
            let is_due = match no_head {
                NoHead::Unsent(_) => resend == Resend::Whole || !trail.is_link_closed(),
                NoHead::Nothing(_) => resend == Resend::Whole,
                NoHead::Partial(_) | NoHead::Malformed(_) => false,
            };
            if !is_due {
                return Err(failure(no_head));
            }
            lane = self.lane(target)?;
            trail.goes_by(&lane);
        }
        let fresh = lane.open().await?;
        let sent = lane.send(fresh, request).await;
        sent.map_err(|no_head| {
            trail.ends(&no_head, false);
            failure(no_head)
        })
    }

    fn lane(&self, target: &Target) -> Result<Lane, Box<Failure>> {
        let peer = match target {
            Target::Http(upstream) => return Ok(Lane::Http(upstream.clone())),
            Target::Peer(peer) => peer,
        };
        let Some(conn) = self.peers.conn(peer) else {
            return Err(Failure::new(
                FailureKind::NoLink,
                "the agent has no live link",
            ));
        };
        let mut lanes = self.lock();
        let lane = lanes.entry(*peer).or_insert_with(|| self.fresh(&conn));
        if !Arc::ptr_eq(&lane.conn, &conn) {
            // Another connection took over; what was kept on the old one is of no use.
            *lane = self.fresh(&conn);
        }
        Ok(Lane::Peer {
            conn,
            pool: lane.pool.clone(),
        })
    }

    fn fresh(&self, conn: &Arc<Conn>) -> PeerLane {
        PeerLane {
            conn: conn.clone(),
            pool: Arc::new(Pool::new(self.limits)),
        }
    }

    /// The agent that it would go to, if that has no live link at all.
    pub fn unlinked(&self, target: &Target) -> Option<PeerId> {
        match target {
            Target::Peer(peer) => self.peers.conn(peer).is_none().then_some(*peer),
            Target::Http(_) => None,
        }
    }

    /// Ages the pools and forgets agents whose link is gone.
    pub fn sweep(&self) {
        self.http
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|upstream| {
                let living = upstream.upgrade();
                living.as_ref().inspect(|upstream| upstream.pool.sweep());
                living.is_some()
            });
        self.lock().retain(|_, lane| {
            lane.pool.sweep();
            !lane.conn.closed.is_cancelled()
        });
    }

    /// Closes what is kept; for the end of the plane.
    pub fn close(&self) {
        let http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        for upstream in http.iter().filter_map(Weak::upgrade) {
            upstream.pool.close();
        }
        self.lock().drain().for_each(|(_, lane)| lane.pool.close());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, PeerLane>> {
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn pool(&self) -> &Arc<Pool> {
        match self {
            Lane::Peer { pool, .. } => pool,
            Lane::Http(upstream) => &upstream.pool,
        }
    }

    async fn open(&self) -> Result<UpConn, Box<Failure>> {
        match self {
            Lane::Http(upstream) => upstream.connect().await,
            Lane::Peer { conn, .. } => match conn.open().await {
                Ok(stream) => Ok(UpConn::new(UpstreamIo::Peer(stream))),
                Err(OpenError::Full) => Err(Failure::new(
                    FailureKind::Busy,
                    "the link carries as many streams as it may",
                )),
                Err(OpenError::Gone) => Err(Failure::new(
                    FailureKind::NoLink,
                    "the agent's link was lost",
                )),
                Err(error) => Err(Failure::new(
                    FailureKind::Connect,
                    format!("no stream to the agent: {error}"),
                )),
            },
        }
    }

    async fn send(&self, conn: UpConn, request: &Outgoing) -> Result<Answer, NoHead> {
        let (head, body) = conn.exchange(request, self.pool()).await?;
        let link_closed: Option<LinkClosed> = match self {
            Lane::Peer { conn, .. } => Some(Box::pin(conn.closed.clone().cancelled_owned())),
            Lane::Http(_) => None,
        };
        Ok(Answer {
            head,
            body,
            link_closed,
        })
    }
}

fn failure(no_head: NoHead) -> Box<Failure> {
    match no_head {
        NoHead::Unsent(error) | NoHead::Nothing(error) => Failure::new(
            FailureKind::Reset,
            format!("closed before an answer: {error}"),
        ),
        NoHead::Partial(error) => Failure::new(
            FailureKind::Reset,
            format!("closed inside the response head: {error}"),
        ),
        NoHead::Malformed(error) => Failure::new(
            FailureKind::Malformed,
            format!("not an HTTP answer: {error:?}"),
        ),
    }
}
