//! What an engine answers over a connection, what the client is given of it, and a canary behind it.
//!
//! What is passed on whole is compared with two readers of their own: a strict one, whose lines end at CRLF, and a lax
//! one, whose lines end at CR, LF or both. Where they do not agree an answer could be taken for another.

use plane_core::{
    events::Event,
    exchange::{Arrival, Command, Forward, ForwardSpec, Respond, Target},
    ingress::DoorSpec,
    peers::{PeersConfig, new_identity_bytes},
    plane::Plane,
    upstream::PoolLimits,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const REQUEST: &str = "Host: h\r\nConnection: close\r\nContent-Length: 15\r\n\r\n{\"stream\":true}";
const CANARY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncanary";
/// What an engine leaves open is waited for no longer.
const WITHIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
/// Small, so that answers that are held and answers that are passed on as they come are both met.
const BUFFERED_BYTES_MAX: usize = 512;

/// What the client was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    Whole { status: u16, body: Vec<u8> },
    Broken,
}

/// What the engine says to anybody but the canary.
#[derive(Clone, Default)]
struct Words {
    wire: Vec<u8>,
    piece_bytes_max: usize,
    closes: bool,
}

#[derive(Default)]
struct Shared {
    words: Mutex<Words>,
    has_said: AtomicBool,
    is_over: AtomicBool,
}

/// A plane with one listener, a thread that forwards whatever arrives, and an engine.
pub struct House {
    plane: Arc<Plane>,
    address: SocketAddr,
    engine: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl House {
    pub fn open() -> House {
        let peers = PeersConfig::new(new_identity_bytes());
        let links = DoorSpec::named("links");
        let plane = Arc::new(Plane::start(peers, links, PoolLimits::default()).unwrap());
        let door = DoorSpec::named("api");
        let address = plane
            .listen_http("127.0.0.1:0".parse().unwrap(), door)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let engine = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let (of_engine, of_plane, forwarding) = (shared.clone(), shared.clone(), plane.clone());
        let threads = vec![
            std::thread::spawn(move || accept(&listener, &of_engine)),
            std::thread::spawn(move || forward(&forwarding, engine, &of_plane)),
        ];
        House {
            plane,
            address,
            engine,
            shared,
            threads,
        }
    }

    /// Lets the engine answer with these bytes: in one piece and in pieces of at most so many, and once more on a
    /// connection that it keeps; then asks for the canary.
    ///
    /// Panics where the pieces change what the client is given, or a reader finds another answer. Gives what the
    /// client is given where the engine closes.
    pub fn check(&self, wire: &[u8], piece_bytes_max: usize) -> Given {
        let given = self.given(wire, usize::MAX, true);
        let in_pieces = self.given(wire, piece_bytes_max, true);
        assert_eq!(in_pieces, given, "in pieces of {piece_bytes_max}");
        agrees(wire, &given);
        agrees(wire, &self.given(wire, piece_bytes_max, false));
        let canary = Given::Whole {
            status: 200,
            body: b"canary".to_vec(),
        };
        assert_eq!(self.ask("/canary"), canary, "the canary's answer");
        given
    }

    fn given(&self, wire: &[u8], piece_bytes_max: usize, closes: bool) -> Given {
        *self.shared.words.lock().unwrap() = Words {
            wire: wire.to_vec(),
            piece_bytes_max,
            closes,
        };
        self.shared.has_said.store(false, Ordering::SeqCst);
        let given = self.ask("/words");
        // What comes late must be there when the connection is used again.
        while !self.shared.has_said.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(50));
        }
        given
    }

    fn ask(&self, path: &str) -> Given {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(format!("POST {path} HTTP/1.1\r\n{REQUEST}").as_bytes())
            .unwrap();
        let mut came = Vec::new();
        // A reset is told by what is missing.
        let _ = stream.read_to_end(&mut came);
        match answer(&came, LineEnds::Strict) {
            Some((status, body)) => Given::Whole { status, body },
            None => Given::Broken,
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The engine waits for connections.
        let _ = TcpStream::connect(self.engine);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.plane.shutdown();
    }
}

fn agrees(wire: &[u8], given: &Given) {
    let Given::Whole { status: 200, body } = given else {
        return;
    };
    for line_ends in [LineEnds::Strict, LineEnds::Lax] {
        let read = answer(wire, line_ends);
        let is_same = read.as_ref() == Some(&(200, body.clone()));
        assert!(is_same, "{line_ends:?} reader: {read:?}\ngiven: {given:?}");
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let (stream, shared) = (stream.unwrap(), shared.clone());
        std::thread::spawn(move || serve(stream, &shared));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let (mut came, mut room) = (Vec::new(), [0; 4096]);
    loop {
        while !came.ends_with(b"{\"stream\":true}") {
            match stream.read(&mut room) {
                Ok(n) if n > 0 => came.extend_from_slice(&room[..n]),
                _ => return,
            }
        }
        let is_canary = came.starts_with(b"POST /canary ");
        came.clear();
        if is_canary {
            let _ = stream.write_all(CANARY);
            continue;
        }
        let words = shared.words.lock().unwrap().clone();
        for piece in words.wire.chunks(words.piece_bytes_max) {
            // It may have heard enough.
            if stream.write_all(piece).is_err() {
                break;
            }
        }
        if words.closes {
            let _ = stream.shutdown(Shutdown::Write);
        }
        shared.has_said.store(true, Ordering::SeqCst);
    }
}

fn forward(plane: &Plane, engine: SocketAddr, shared: &Shared) {
    let lanes = &plane.context().lanes;
    let limits = PoolLimits::default();
    let target = Target::Http(lanes.http(engine.ip().to_string(), engine.port(), limits));
    let spec = Arc::new(ForwardSpec {
        buffered_bytes_max: BUFFERED_BYTES_MAX,
        idle: WITHIN,
        meter: true,
        ..ForwardSpec::default()
    });
    let mut asking: Option<Arc<Arrival>> = None;
    while !shared.is_over.load(Ordering::SeqCst) {
        for event in plane.context().events.drain() {
            match event {
                Event::Arrived(arrival) => {
                    arrival.mailbox.post(Command::Forward(Box::new(Forward {
                        attempt: 1,
                        target: target.clone(),
                        path: arrival.head.path.clone(),
                        spec: spec.clone(),
                        within: WITHIN,
                        reply_fields: Vec::new(),
                        body: None,
                    })));
                    asking = Some(arrival);
                }
                Event::Failed { .. } => {
                    if let Some(arrival) = &asking {
                        arrival.mailbox.post(Command::Respond(Respond {
                            status: 502,
                            fields: Vec::new(),
                            body: "failed".into(),
                        }));
                    }
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    /// CRLF.
    Strict,
    /// CR, LF, or both.
    Lax,
}

/// Takes bytes line by line; made to be plain, not fast.
struct Reader<'a> {
    rest: &'a [u8],
    line_ends: LineEnds,
}

/// Status and body of the first final answer; `None` where it is not whole.
fn answer(wire: &[u8], line_ends: LineEnds) -> Option<(u16, Vec<u8>)> {
    let mut reader = Reader {
        rest: wire,
        line_ends,
    };
    loop {
        let (status, body) = reader.answer()?;
        if status >= 200 {
            return Some((status, body));
        }
    }
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let (end, next) = match self.line_ends {
            LineEnds::Strict => {
                let end = self.rest.windows(2).position(|part| part == b"\r\n")?;
                (end, end + 2)
            }
            LineEnds::Lax => {
                let end = self.rest.iter().position(|byte| b"\r\n".contains(byte))?;
                let is_pair = self.rest[end..].starts_with(b"\r\n");
                (end, end + if is_pair { 2 } else { 1 })
            }
        };
        let line = &self.rest[..end];
        self.rest = &self.rest[next..];
        Some(line)
    }

    fn answer(&mut self) -> Option<(u16, Vec<u8>)> {
        let first = self.line()?;
        let status = std::str::from_utf8(first.get(9..12)?).ok()?.parse().ok()?;
        let (mut length, mut is_chunked) = (None, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|byte| *byte == b':')?;
            let value = line[colon + 1..].trim_ascii();
            match line[..colon].to_ascii_lowercase().as_slice() {
                b"content-length" => length = std::str::from_utf8(value).ok()?.parse().ok(),
                b"transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        let has_none = status < 200 || status == 204 || status == 304;
        let body = match (has_none, is_chunked, length) {
            (true, ..) => Vec::new(),
            (_, true, _) => self.chunks()?,
            (_, _, Some(length)) => self.take(length)?.to_vec(),
            _ => std::mem::take(&mut self.rest).to_vec(),
        };
        Some((status, body))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let digits = line.split(|byte| b"; \t".contains(byte)).next()?;
            let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !self.line()?.is_empty() {}
                return Some(body);
            }
            body.extend_from_slice(self.take(size)?);
            if !self.line()?.is_empty() {
                return None;
            }
        }
    }
}
