//! An inference engine that does no inference: how fast can a router be, with nothing behind it to wait for?
//!
//! It answers `POST /v1/chat/completions`, whole or streamed, `GET /v1/models` and `GET /health`, on connections that
//! are kept. Each streamed chunk carries its own write time, so that whoever reads it knows how long the way took. What
//! to answer is set per request, in the text of the chat, which every router leaves alone, as
//! `bench: chunks=50 interval_us=20000;`:
//!
//! | name | default | what |
//! |---|---|---|
//! | `chunks` | 50 | chunks of a streamed answer |
//! | `interval_us` | 20000 | time between two chunks; 0 writes as fast as the reader reads |
//! | `chunk_bytes` | 200 | size of one event, at least its JSON |
//! | `delay_us` | 0 | time before the answer begins |
//! | `body_bytes` | 1024 | size of a whole answer, at least its JSON |
//!
//! Each chunk is a write of its own; with interval 0, sixteen chunks are. `GET /bench/counts` says how many chats it has,
//! how many it had at most at one time, and how many since the last such question.
//! Options: `--listen HOST:PORT`, `--model NAME`. One thread.

#[path = "bench_shared/answers.rs"]
mod answers;
#[path = "bench_shared/args.rs"]
mod args;
#[path = "bench_shared/chunked.rs"]
mod chunked;
#[path = "bench_shared/clock.rs"]
mod clock;
#[path = "bench_shared/counts.rs"]
mod counts;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use answers::{EVENT_END, StampedEvent, WANTED_MARK, Wanted, stream_head, unary_answer, whole};
use args::Args;
use bytes::{Buf, BytesMut};
use chunked::Chunked;
use counts::Chat;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// With a write for each chunk this program's own system calls would be the limit of a saturated stream, and a router
/// that reads in larger pieces could be faster than the direct way.
const CHUNKS_PER_WRITE: usize = 16;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench_engine: {sentence}");
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<(), String> {
    let mut args = Args::read()?;
    let listen: String = args.take("listen", "127.0.0.1:8888".to_owned())?;
    let model: String = args.take("model", "bench-model".to_owned())?;
    args.finish()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(serve(&listen, &model))
}

async fn serve(listen: &str, model: &str) -> Result<(), String> {
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    println!("bench_engine listening on http://{listen}");
    loop {
        let (stream, _) = listener
            .accept()
            .await
            .map_err(|error| format!("cannot accept: {error}"))?;
        let model = model.to_owned();
        // A caller that goes away is no event here: whoever sent the load counts what it missed.
        tokio::spawn(async move { Connection::new(stream, model).run().await.ok() });
    }
}

/// What a request's head said.
struct Asked {
    path: Path,
    head_bytes: usize,
    body: Body,
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Chat,
    Models,
    Health,
    Counts,
    Unknown,
}

enum Body {
    Sized(usize),
    Chunked,
}

struct Connection {
    stream: TcpStream,
    model: String,
    input: BytesMut,
    body: Vec<u8>,
    out: Vec<u8>,
    streamed: memchr::memmem::Finder<'static>,
    asks: memchr::memmem::Finder<'static>,
    /// The last whole answer, with the size and the keeping it was made for.
    unary: ((usize, bool), Vec<u8>),
}

impl Connection {
    fn new(stream: TcpStream, model: String) -> Self {
        let unary = ((usize::MAX, true), Vec::new());
        let streamed = memchr::memmem::Finder::new(br#""stream""#);
        let asks = memchr::memmem::Finder::new(WANTED_MARK);
        let (input, body, out) = (BytesMut::new(), Vec::new(), Vec::new());
        Self {
            stream,
            model,
            input,
            body,
            out,
            streamed,
            asks,
            unary,
        }
    }

    async fn run(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        while let Some(asked) = self.read_head().await? {
            self.input.advance(asked.head_bytes);
            self.read_body(&asked.body).await?;
            self.answer(&asked).await?;
            if !asked.keep {
                break;
            }
        }
        Ok(())
    }

    async fn read_more(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.input).await
    }

    /// The next request's head; `None` when the caller has closed.
    async fn read_head(&mut self) -> io::Result<Option<Asked>> {
        loop {
            if !self.input.is_empty()
                && let Some(asked) = parse_head(&self.input)?
            {
                return Ok(Some(asked));
            }
            if self.input.len() > HEAD_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Puts the request's body into `self.body`.
    async fn read_body(&mut self, body: &Body) -> io::Result<()> {
        self.body.clear();
        match *body {
            Body::Sized(size) => {
                while self.input.len() < size {
                    if self.read_more().await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                self.body.extend_from_slice(&self.input[..size]);
                self.input.advance(size);
            }
            Body::Chunked => {
                let mut chunked = Chunked::default();
                while !chunked.done() && self.body.len() <= BODY_BYTES_MAX {
                    if self.input.is_empty() && self.read_more().await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    let used = chunked
                        .feed(&self.input, |data| self.body.extend_from_slice(data))
                        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                    self.input.advance(used);
                }
            }
        }
        Ok(())
    }

    async fn answer(&mut self, asked: &Asked) -> io::Result<()> {
        match asked.path {
            Path::Chat => self.chat(asked).await,
            Path::Models => {
                let list = format!(
                    r#"{{"object":"list","data":[{{"id":"{}","object":"model","created":0,"owned_by":"bench"}}]}}"#,
                    self.model
                );
                self.write_whole("200 OK", list.as_bytes(), asked).await
            }
            Path::Health => self.write_whole("200 OK", b"{}", asked).await,
            Path::Counts => {
                let counts = counts::take();
                self.write_whole("200 OK", counts.as_bytes(), asked).await
            }
            Path::Unknown => self.write_whole("404 Not Found", b"{}", asked).await,
        }
    }

    async fn chat(&mut self, asked: &Asked) -> io::Result<()> {
        // Ends in the poll that writes the last byte, so that no later chat can be counted beside this one.
        let _counted = Chat::begin();
        let wanted = Wanted::of(&self.body, &self.asks);
        if wanted.delay_us > 0 {
            tokio::time::sleep(Duration::from_micros(wanted.delay_us)).await;
        }
        if self.wants_stream() {
            return self.stream_answer(wanted, asked.keep).await;
        }
        let wanted = (wanted.body_bytes, asked.keep);
        if self.unary.0 != wanted {
            self.unary = (wanted, unary_answer(&self.model, wanted.0, wanted.1));
        }
        self.stream.write_all(&self.unary.1).await
    }

    async fn write_whole(&mut self, status: &str, body: &[u8], asked: &Asked) -> io::Result<()> {
        self.stream
            .write_all(&whole(status, body, asked.keep))
            .await
    }

    /// True when the body says `"stream": true`, with any white space.
    fn wants_stream(&self) -> bool {
        self.streamed.find_iter(&self.body).any(|at| {
            let mut rest = self.body[at + 8..]
                .iter()
                .filter(|byte| !byte.is_ascii_whitespace());
            rest.next() == Some(&b':') && rest.next() == Some(&b't')
        })
    }

    async fn stream_answer(&mut self, wanted: Wanted, keep: bool) -> io::Result<()> {
        let event = StampedEvent::new(&self.model, wanted.chunk_bytes);
        self.out.clear();
        self.out.extend_from_slice(&stream_head(keep));
        if wanted.interval_us == 0 {
            self.write_at_once(&event, wanted.chunks).await?;
        } else {
            self.write_paced(&event, wanted).await?;
        }
        self.out.extend_from_slice(EVENT_END);
        self.flush().await
    }

    async fn write_at_once(&mut self, event: &StampedEvent, chunks: usize) -> io::Result<()> {
        for number in 1..=chunks {
            event.write(&mut self.out);
            if number % CHUNKS_PER_WRITE == 0 {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// The first chunk at once, then one each interval; a last interval passes before the end, so that a stream of n
    /// chunks takes n intervals and streams one after the other keep their pace.
    async fn write_paced(&mut self, event: &StampedEvent, wanted: Wanted) -> io::Result<()> {
        let period = Duration::from_micros(wanted.interval_us);
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..wanted.chunks {
            event.write(&mut self.out);
            self.flush().await?;
            ticks.tick().await;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}

/// What the head at the start of `input` asks for; `None` when it has not come whole.
fn parse_head(input: &[u8]) -> io::Result<Option<Asked>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let head_bytes = match request.parse(input) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut asked = Asked {
        path: known_path(
            request.method.unwrap_or_default(),
            request.path.unwrap_or_default(),
        ),
        head_bytes,
        body: Body::Sized(0),
        keep: true,
    };
    for header in request.headers.iter() {
        read_header(&mut asked, header)?;
    }
    Ok(Some(asked))
}

fn read_header(asked: &mut Asked, header: &httparse::Header<'_>) -> io::Result<()> {
    let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
    if header.name.eq_ignore_ascii_case("content-length") {
        let size: usize = value.parse().unwrap_or(usize::MAX);
        if size > BODY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        asked.body = Body::Sized(size);
    } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
        asked.body = Body::Chunked;
    } else if header.name.eq_ignore_ascii_case("connection") {
        asked.keep = !value.eq_ignore_ascii_case("close");
    }
    Ok(())
}

fn known_path(method: &str, path: &str) -> Path {
    match (method, path) {
        ("POST", "/v1/chat/completions") => Path::Chat,
        ("GET", "/v1/models") => Path::Models,
        ("GET", "/health") => Path::Health,
        ("GET", "/bench/counts") => Path::Counts,
        _ => Path::Unknown,
    }
}
