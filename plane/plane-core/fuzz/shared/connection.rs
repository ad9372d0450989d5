//! One connection from outside: bytes in, requests and answers out, and a canary behind them.
//!
//! What the plane takes for requests is compared with two readers of their own: a strict one, whose lines end at CRLF,
//! and a lax one, whose lines end at CR, LF or both. Where the three do not agree a request could be smuggled.

use plane_core::{
    events::Event,
    exchange::{Command, Respond},
    ingress::DoorSpec,
    peers::{PeersConfig, new_identity_bytes},
    plane::Plane,
    upstream::PoolLimits,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const CANARY: &[u8] = b"GET /canary HTTP/1.1\r\nHost: canary\r\nConnection: close\r\n\r\n";
/// What is not whole is waited for no longer.
const WITHIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

/// One request, as somebody read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub body: Vec<u8>,
}

/// A plane with one listener, and a thread that answers whatever arrives.
pub struct House {
    plane: Arc<Plane>,
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
    answering: Option<JoinHandle<()>>,
}

impl House {
    pub fn open() -> House {
        let peers = PeersConfig::new(new_identity_bytes());
        let links = DoorSpec::named("links");
        let plane = Arc::new(Plane::start(peers, links, PoolLimits::default()).unwrap());
        let mut door = DoorSpec::named("api");
        (door.head_within, door.body_within) = (WITHIN, WITHIN);
        let address = plane
            .listen_http("127.0.0.1:0".parse().unwrap(), door)
            .unwrap();
        let (seen, is_over) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::default());
        let answering = {
            let (plane, seen, is_over) = (plane.clone(), seen.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || answer(&plane, &seen, &is_over))
        };
        House {
            plane,
            address,
            seen,
            is_over,
            answering: Some(answering),
        }
    }

    /// Sends the bytes in pieces of at most so many, then the canary, and judges what came of them.
    ///
    /// Panics where the plane and a reader disagree. Gives the requests that were served.
    pub fn check(&self, input: &[u8], piece_bytes_max: usize) -> Vec<Request> {
        self.seen.lock().unwrap().clear();
        let wire = [input, CANARY].concat();
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for piece in wire.chunks(piece_bytes_max) {
            // It may have been refused already.
            if stream.write_all(piece).is_err() {
                break;
            }
        }
        let answers = answers(&mut stream);
        let served = self.seen.lock().unwrap().clone();
        for line_ends in [LineEnds::Strict, LineEnds::Lax] {
            let read = requests(&wire, line_ends);
            let agreed = read.iter().take(served.len());
            assert!(
                agreed.eq(served.iter()),
                "{line_ends:?} reader: {read:?}\nserved: {served:?}"
            );
        }
        assert!(
            answers >= served.len(),
            "{answers} answers to {} requests",
            served.len()
        );
        assert!(answers <= served.len() + 1, "an answer to nothing");
        served
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(answering) = self.answering.take() {
            let _ = answering.join();
        }
        self.plane.shutdown();
    }
}

fn answer(plane: &Plane, seen: &Mutex<Vec<Request>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for event in plane.context().events.drain() {
            let Event::Arrived(arrival) = event else {
                continue;
            };
            let status = match arrival.problem {
                Some(_) => 400,
                None => {
                    let head = &arrival.head;
                    let query = match head.query.is_empty() {
                        true => Vec::new(),
                        false => [b"?", &head.query[..]].concat(),
                    };
                    seen.lock().unwrap().push(Request {
                        method: head.method.to_vec(),
                        target: [&head.path[..], &query].concat(),
                        body: arrival.body.to_vec(),
                    });
                    200
                }
            };
            arrival.mailbox.post(Command::Respond(Respond {
                status,
                fields: Vec::new(),
                body: "ok".into(),
            }));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// How many answers come until one says that it is the last; their bodies are not looked at but for their length.
fn answers(stream: &mut TcpStream) -> usize {
    let (mut came, mut room, mut count) = (Vec::new(), [0; 16 << 10], 0);
    loop {
        while let Some(end) = came.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8(came[..end].to_vec()).unwrap();
            assert!(head.starts_with("HTTP/1.1 "), "no answer: {head:?}");
            let status: u16 = head[9..12].parse().unwrap();
            if status < 200 {
                came.drain(..end + 4);
                continue;
            }
            let field = |name: &str| {
                let mut lines = head.split("\r\n").skip(1);
                lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
            };
            let is_last = field("connection: ").is_some_and(|value| value == "close");
            let length: usize = field("content-length: ").map_or(0, |text| text.parse().unwrap());
            count += 1;
            if is_last {
                return count;
            }
            // The answer to a HEAD has a length and nothing behind it.
            let body = &came[end + 4..];
            let has_body = body.starts_with(b"ok");
            if !has_body && body.len() < length && !body.starts_with(b"HTTP") && !body.is_empty() {
                count -= 1;
                break;
            }
            came.drain(..end + 4 + if has_body { length } else { 0 });
        }
        match stream.read(&mut room) {
            Ok(n) if n > 0 => came.extend_from_slice(&room[..n]),
            // Closed, or reset over what it had not read.
            _ => return count,
        }
        // What came behind an answer to HEAD may be the body of one that is not.
        if came.starts_with(b"ok") {
            came.drain(..2);
        }
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

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn request(&mut self) -> Option<Request> {
        let mut first = self.line()?;
        while first.is_empty() {
            first = self.line()?;
        }
        let mut words = first.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|byte| *byte == b':')?;
            let value = line[colon + 1..].trim_ascii();
            match line[..colon].to_ascii_lowercase().as_slice() {
                b"content-length" => length = std::str::from_utf8(value).ok()?.parse().ok()?,
                b"transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        let body = match is_chunked {
            true => self.chunks()?,
            false => self.take(length)?.to_vec(),
        };
        Some(Request {
            method: method.to_vec(),
            target: origin(method, target),
            body,
        })
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

/// The target without what an absolute form says of the server; an empty query is none.
fn origin(method: &[u8], target: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(target).into_owned();
    if method == b"CONNECT" {
        return text.into_bytes();
    }
    let lower = text.to_ascii_lowercase();
    let scheme = ["http://", "https://"]
        .iter()
        .find(|scheme| lower.starts_with(**scheme));
    let mut origin = match scheme {
        None => text,
        Some(scheme) => {
            let behind = &text[scheme.len()..];
            let path = behind.find(['/', '?']).map_or("", |at| &behind[at..]);
            if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{path}")
            }
        }
    };
    if origin.starts_with('?') {
        origin.insert(0, '/');
    }
    if origin.find('?') == Some(origin.len().saturating_sub(1)) {
        origin.pop();
    }
    origin.into_bytes()
}

fn requests(wire: &[u8], line_ends: LineEnds) -> Vec<Request> {
    let mut reader = Reader {
        rest: wire,
        line_ends,
    };
    std::iter::from_fn(|| reader.request()).collect()
}
