//! The data plane as one thing: its thread, its listeners, its links, and what is asked of it.
//!
//! Everything runs on one thread with one event loop; what other threads call here hands work over
//! or waits for an answer, and never touches a connection.

pub use crate::own_request::OwnRequest;
use crate::{
    bodies::{ANSWERS_BYTES_MAX, Bodies},
    events::{Event, Events, Handle},
    exchange::{Standing, Target},
    ingress::{self, Door, DoorSpec},
    own_request::own_request,
    peers::{PeerEvent, Peers, PeersConfig},
    upstream::{Lanes, PoolLimits},
    vital::{sentence, watched},
    wakeups::Wakeups,
};
use libp2p::{Multiaddr, PeerId};
use socket2::SockRef;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime,
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// What every connection needs at hand.
pub struct Context {
    pub events: Events,
    pub lanes: Lanes,
    pub peers: Peers,
    pub wakeups: Arc<Wakeups>,
    /// What is held of answers.
    pub answers: Arc<Bodies>,
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
        Plane::holding(peers, peer_door, pool, ANSWERS_BYTES_MAX)
    }

    /// The same with another bound on what is held of all answers together.
    pub fn holding(
        peers: PeersConfig,
        peer_door: DoorSpec,
        pool: PoolLimits,
        answers_bytes_max: usize,
    ) -> io::Result<Plane> {
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
                    let broken = events.clone();
                    let serving = async {
                        match boot(events, peers, peer_door, pool, answers_bytes_max) {
                            Ok(context) => {
                                let _ = started.send(Ok((runtime::Handle::current(), context)));
                                stop.cancelled().await;
                            }
                            Err(error) => drop(started.send(Err(error))),
                        }
                    };
                    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serving)));
                    if let Err(panic) = ended {
                        let why = sentence("the data plane's thread", &*panic);
                        broken.push(Event::Broken { why });
                    }
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
        Ok(self.listen_http_on(&[address.ip()], address.port(), spec)?[0])
    }

    /// The same on several addresses with one port, behind one door: its bounds are for all together.
    pub fn listen_http_on(
        &self,
        ips: &[IpAddr],
        mut port: u16,
        spec: DoorSpec,
    ) -> io::Result<Vec<SocketAddr>> {
        let _inside = self.runtime.enter();
        let mut listeners = Vec::new();
        let mut bound = Vec::new();
        for ip in ips {
            let listener = bind(SocketAddr::new(*ip, port))?;
            let address = listener.local_addr()?;
            port = address.port();
            bound.push(address);
            listeners.push(listener);
        }
        let door = Door::new(spec);
        self.doors().push(door.clone());
        for listener in listeners {
            let accepting = ingress::accept_tcp(self.context.clone(), door.clone(), listener);
            self.spawn("a listener of the data plane", accepting);
        }
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
        self.spawn("a dial of the data plane", async move {
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
        self.spawn("a request of the data plane", async move {
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

    /// Bytes of answers held now.
    pub fn answers_bytes(&self) -> usize {
        self.context.answers.bytes()
    }

    fn spawn(&self, what: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(vital(&self.context.events, what, work));
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

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        let socket = TcpSocket::new_v6()?;
        // Whoever wants both families names both; some systems would have `::` stand for both, others not.
        SockRef::from(&socket).set_only_v6(true)?;
        socket
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn boot(
    events: Events,
    peers: PeersConfig,
    peer_door: Arc<Door>,
    pool: PoolLimits,
    answers_bytes_max: usize,
) -> io::Result<Arc<Context>> {
    let (peers, inbound, peer_events) =
        Peers::start(peers).map_err(|error| io::Error::other(error.to_string()))?;
    let lanes = Lanes::new(peers.clone(), pool);
    let context = Arc::new(Context {
        events: events.clone(),
        lanes,
        peers,
        wakeups: Arc::default(),
        answers: Bodies::new(answers_bytes_max),
        last_handle: AtomicU64::new(0),
        live: AtomicUsize::new(0),
    });
    let spawn_vital = |what, work: Pin<Box<dyn Future<Output = ()> + Send>>| {
        tokio::spawn(vital(&events, what, work));
    };
    spawn_vital("the ticker", Box::pin(events.clone().keep_ticking()));
    let wakeups = context.wakeups.clone();
    let waking = async move { wakeups.keep_waking().await };
    spawn_vital("the carrier of commands", Box::pin(waking));
    let telling = tell_peer_events(events.clone(), peer_events);
    spawn_vital("the teller of links", Box::pin(telling));
    let accepting = ingress::accept_peers(context.clone(), peer_door, inbound);
    spawn_vital("the listener for peers' streams", Box::pin(accepting));
    let swept = context.clone();
    let sweeping = async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            swept.lanes.sweep();
        }
    };
    spawn_vital("the sweeper of kept connections", Box::pin(sweeping));
    Ok(context)
}

fn vital(
    events: &Events,
    what: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let events = events.clone();
    watched(what, work, move |why| events.push(Event::Broken { why }))
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
            PeerEvent::Broken { why } => Event::Broken { why },
            PeerEvent::Refused { ip, reason } => Event::Rejected {
                listener: "peers".into(),
                client: ip.to_string(),
                status: 0,
                reason,
            },
        });
    }
}
