//! The data plane as one thing: its thread, its listeners, its links, and what is asked of it.
//!
//! Everything runs on one thread with one event loop; what other threads call here hands work over
//! or waits for an answer, and never touches a connection.

pub use crate::own_request::OwnRequest;
use crate::{
    events::{Event, Events, Handle},
    exchange::{Standing, Target},
    ingress::{self, Door, DoorSpec},
    own_request::own_request,
    peers::{PeerEvent, Peers, PeersConfig},
    upstream::{Lanes, PoolLimits},
    wakeups::Wakeups,
};
use libp2p::{Multiaddr, PeerId};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{net::TcpSocket, runtime, sync::mpsc};
use tokio_util::sync::CancellationToken;

/// What every connection needs at hand.
pub struct Context {
    pub events: Events,
    pub lanes: Lanes,
    pub peers: Peers,
    pub wakeups: Arc<Wakeups>,
    last_handle: AtomicU64,
    live: AtomicUsize,
}

/// One request being served; it stops counting when dropped.
pub struct Live<'a>(&'a AtomicUsize);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Context {
    pub fn begin(&self) -> Live<'_> {
        self.live.fetch_add(1, Ordering::Relaxed);
        Live(&self.live)
    }

    /// Requests being served now, on all listeners.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub fn next_handle(&self) -> Handle {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }
}

pub struct Plane {
    runtime: runtime::Handle,
    context: Arc<Context>,
    peer_door: Arc<Door>,
    doors: Mutex<Vec<Arc<Door>>>,
    stop: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Connections waiting to be accepted by us, at the kernel.
const BACKLOG: u32 = 4096;
/// Kept connections are looked over this often.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Threads for what would hold up the plane's own: name look-ups, long bodies to look at.
const HELPERS_MAX: usize = 8;

impl Plane {
    /// Starts the thread. `peer_door` holds the rules for what peers send over their links.
    pub fn start(peers: PeersConfig, peer_door: DoorSpec, pool: PoolLimits) -> io::Result<Plane> {
        let events = Events::new()?;
        let stop = CancellationToken::new();
        let peer_door = Door::new(peer_door);
        let (started, starting) = std::sync::mpsc::channel();
        let thread = {
            let (events, stop, peer_door) = (events.clone(), stop.clone(), peer_door.clone());
            std::thread::Builder::new()
                .name("plane".into())
                .spawn(move || {
                    let mut builder = runtime::Builder::new_current_thread();
                    let built = builder
                        .enable_all()
                        .max_blocking_threads(HELPERS_MAX)
                        .build();
                    let runtime = match built {
                        Ok(runtime) => runtime,
                        Err(error) => return drop(started.send(Err(error))),
                    };
                    runtime.block_on(async {
                        match boot(events, peers, peer_door, pool) {
                            Ok(context) => {
                                let _ = started.send(Ok((runtime::Handle::current(), context)));
                                stop.cancelled().await;
                            }
                            Err(error) => drop(started.send(Err(error))),
                        }
                    });
                    // A helper may be stuck in a name look-up; nobody waits for what it finds.
                    runtime.shutdown_background();
                })?
        };
        let (runtime, context) = starting
            .recv()
            .map_err(|_| io::Error::other("the data plane ended at its start"))??;
        let doors = Mutex::new(vec![peer_door.clone()]);
        Ok(Plane {
            runtime,
            context,
            peer_door,
            doors,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Binds and serves; gives the address it bound, which has the port that 0 became.
    pub fn listen_http(&self, address: SocketAddr, spec: DoorSpec) -> io::Result<SocketAddr> {
        let _inside = self.runtime.enter();
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        let door = Door::new(spec);
        self.doors().push(door.clone());
        self.runtime
            .spawn(ingress::accept_tcp(self.context.clone(), door, listener));
        Ok(bound)
    }

    /// Listens for peers; gives the addresses without the peer ID.
    pub fn listen_peers(&self, address: Multiaddr) -> Result<Vec<Multiaddr>, String> {
        let peers = self.context.peers.clone();
        self.runtime
            .block_on(peers.listen(address))
            .map_err(|error| error.to_string())
    }

    /// Requests of peers under this prefix go to that target without a question.
    pub fn add_standing(&self, rule: Standing) {
        self.peer_door.add_standing(rule);
    }

    /// From now on these peers are welcome and the bodies of their requests are read, and nobody else's.
    pub fn hear_only(&self, peers: impl IntoIterator<Item = PeerId>) {
        let peers: Vec<PeerId> = peers.into_iter().collect();
        self.context.peers.welcome_only(peers.iter().copied());
        let names = peers.into_iter().map(|peer| peer.to_base58().into());
        self.peer_door.hear_only(names.collect());
    }

    /// Connects to a peer; the end is told as `Completed` with that token.
    pub fn dial(&self, token: u64, peer: PeerId, addresses: Vec<Multiaddr>, within: Duration) {
        let context = self.context.clone();
        self.runtime.spawn(async move {
            let result =
                match tokio::time::timeout(within, context.peers.dial(peer, addresses)).await {
                    Ok(Ok(())) => Ok(None),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("no connection within {} s", within.as_secs_f64())),
                };
            context.events.push(Event::Completed { token, result });
        });
    }

    /// Sends one request of our own; the answer is told as `Completed` with that token.
    pub fn request(&self, token: u64, target: Target, request: OwnRequest, within: Duration) {
        let context = self.context.clone();
        self.runtime.spawn(async move {
            let result =
                match tokio::time::timeout(within, own_request(&context, &target, request)).await {
                    Ok(result) => result.map(Some),
                    Err(_) => Err(format!("no answer within {} s", within.as_secs_f64())),
                };
            context.events.push(Event::Completed { token, result });
        });
    }

    /// No new connections or requests: idle connections close, busy ones after their answer.
    pub fn close_doors(&self) {
        for door in self
            .doors()
            .iter()
            .filter(|door| !Arc::ptr_eq(door, &self.peer_door))
        {
            door.closing.cancel();
        }
    }

    /// Ends everything at once and waits for the thread.
    pub fn shutdown(&self) {
        self.stop.cancel();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic of that thread has been reported where it happened.
            let _ = thread.join();
            self.context.lanes.close();
        }
    }

    /// Bytes of request bodies held now, by all listeners.
    pub fn bodies_bytes(&self) -> usize {
        let doors = self.doors();
        let held = doors
            .iter()
            .map(|door| door.bodies.bytes() + door.strangers_bodies.bytes());
        held.sum()
    }

    fn doors(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Door>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn boot(
    events: Events,
    peers: PeersConfig,
    peer_door: Arc<Door>,
    pool: PoolLimits,
) -> io::Result<Arc<Context>> {
    let (peers, inbound, peer_events) =
        Peers::start(peers).map_err(|error| io::Error::other(error.to_string()))?;
    let lanes = Lanes::new(peers.clone(), pool);
    let context = Arc::new(Context {
        events: events.clone(),
        lanes,
        peers,
        wakeups: Arc::default(),
        last_handle: AtomicU64::new(0),
        live: AtomicUsize::new(0),
    });
    tokio::spawn(events.clone().keep_ticking());
    let wakeups = context.wakeups.clone();
    tokio::spawn(async move { wakeups.keep_waking().await });
    tokio::spawn(tell_peer_events(events, peer_events));
    tokio::spawn(ingress::accept_peers(context.clone(), peer_door, inbound));
    let swept = context.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            swept.lanes.sweep();
        }
    });
    Ok(context)
}

async fn tell_peer_events(events: Events, mut peer_events: mpsc::UnboundedReceiver<PeerEvent>) {
    while let Some(event) = peer_events.recv().await {
        events.push(match event {
            PeerEvent::Up {
                peer,
                remote,
                dialed,
            } => Event::PeerUp {
                peer: peer.to_base58(),
                remote,
                dialed,
            },
            PeerEvent::Down { peer, reason } => Event::PeerDown {
                peer: peer.to_base58(),
                reason,
            },
            PeerEvent::Identified {
                peer,
                agent_version,
            } => Event::PeerIdentified {
                peer: peer.to_base58(),
                agent_version,
            },
            PeerEvent::Refused { ip, reason } => Event::Rejected {
                listener: "peers".into(),
                client: ip.to_string(),
                status: 0,
                reason,
            },
        });
    }
}
