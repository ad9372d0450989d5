//! How much does a server carry, and how long does each request and each chunk take? Sends chats, counts what comes
//! back, and prints one line of JSON. One thread, HTTP/1.1 on kept connections.
//!
//! `--mode`:
//! - `unary`: `--clients` clients, each sending its next request when the last answer has come.
//! - `streams`: `--clients` streams at a time, each of `--chunks` chunks `--interval-us` apart. 0 is saturation: as fast
//!   as the reader reads. They begin one after the other over the length of a stream; the window comes after that.
//! - `idle`: opens `--clients` connections, asks each for `/health`, prints a line, and holds them for `--seconds`.
//!
//! Further options: `--target HOST:PORT`, `--seconds`, `--prompt-bytes` (of the whole request body), `--body-bytes` (of
//! a whole answer), `--chunk-bytes`, `--model`. A client whose request failed pauses a little, so that failing fast does
//! not look like speed.

#[path = "bench_shared/args.rs"]
mod args;
#[path = "bench_shared/chunked.rs"]
mod chunked;
#[path = "bench_shared/client.rs"]
mod client;
#[path = "bench_shared/clock.rs"]
mod clock;
#[path = "bench_shared/events.rs"]
mod events;
#[path = "bench_shared/histogram.rs"]
mod histogram;
#[path = "bench_shared/tally.rs"]
mod tally;

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use args::Args;
use client::{Answer, Connection, Failure, Unread};
use events::Events;
use tally::Tally;
use tokio::task::LocalSet;

/// How long a client rests after a request that failed.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// How long answers under way may take to end after the window.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench_load: {sentence}");
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<(), String> {
    let plan = Plan::read(Args::read()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    LocalSet::new().block_on(&runtime, async {
        match plan.mode.as_str() {
            "unary" | "streams" => load(Rc::new(plan)).await,
            "idle" => hold(&plan).await,
            other => Err(format!(
                "--mode cannot be {other:?}; it is unary, streams or idle"
            )),
        }
    })
}

struct Plan {
    mode: String,
    target: String,
    clients: usize,
    window: Duration,
    chunks: usize,
    interval: Duration,
    request: Vec<u8>,
}

impl Plan {
    fn read(mut args: Args) -> Result<Self, String> {
        let mode: String = args.take("mode", "unary".to_owned())?;
        let target: String = args.take("target", "127.0.0.1:8888".to_owned())?;
        let clients = args.take("clients", 16)?;
        let seconds: f64 = args.take("seconds", 4.0)?;
        let window = Duration::try_from_secs_f64(seconds).map_err(|_| "--seconds is too long")?;
        let chunks = args.take("chunks", 50)?;
        let interval_us: u64 = args.take("interval-us", 20_000)?;
        let prompt_bytes: usize = args.take("prompt-bytes", 4096)?;
        let body_bytes: usize = args.take("body-bytes", 1024)?;
        let chunk_bytes: usize = args.take("chunk-bytes", 200)?;
        let model: String = args.take("model", "bench-model".to_owned())?;
        args.finish()?;
        let body = chat(&model, mode == "streams", prompt_bytes);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n\
             X-Bench-Chunks: {chunks}\r\nX-Bench-Interval-Us: {interval_us}\r\n\
             X-Bench-Chunk-Bytes: {chunk_bytes}\r\nX-Bench-Body-Bytes: {body_bytes}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.into_bytes(), body].concat();
        let interval = Duration::from_micros(interval_us);
        Ok(Self {
            mode,
            target,
            clients,
            window,
            chunks,
            interval,
            request,
        })
    }
}

impl Plan {
    fn streams(&self) -> bool {
        self.mode == "streams"
    }

    /// How long it takes until all clients have begun: the length of one stream, so that at any time as many streams
    /// begin as end. The window comes after it.
    fn ramp(&self) -> Duration {
        let chunks = u32::try_from(self.chunks).unwrap_or(u32::MAX);
        if self.streams() {
            self.interval.saturating_mul(chunks)
        } else {
            Duration::ZERO
        }
    }
}

/// A chat request `size_bytes` long, or as long as its JSON where that is more.
fn chat(model: &str, stream: bool, size_bytes: usize) -> Vec<u8> {
    let start = format!(
        "{{\"model\":\"{model}\",\"stream\":{stream},\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":\""
    );
    let end = "\"}]}";
    let fill = "every word of this prompt is here to fill it ";
    let fill_bytes = size_bytes.saturating_sub(start.len() + end.len());
    let mut body = start.into_bytes();
    body.extend(fill.bytes().cycle().take(fill_bytes));
    body.extend_from_slice(end.as_bytes());
    body
}

/// Runs all clients for the window, lets what is under way end, and prints the report.
async fn load(plan: Rc<Plan>) -> Result<(), String> {
    Connection::open(&plan.target)
        .await
        .map_err(|_| format!("nobody answers on {}", plan.target))?;
    let from = Instant::now() + plan.ramp();
    let until = from + plan.window;
    let tally = Rc::new(RefCell::new(Tally::new(from, until)));
    let clients: Vec<_> = (0..plan.clients)
        .map(|index| {
            let client = Client {
                plan: Rc::clone(&plan),
                tally: Rc::clone(&tally),
                connection: None,
            };
            tokio::task::spawn_local(client.run(index))
        })
        .collect();
    let last = tokio::time::Instant::from_std(until + plan.ramp() + GRACE);
    for client in clients {
        if tokio::time::timeout_at(last, client).await.is_err() {
            tally.borrow_mut().errors.stuck += 1;
        }
    }
    let tally = tally.borrow();
    let line = serde_json::to_string(&tally.report(plan.window));
    println!("{}", line.map_err(|error| format!("no report: {error}"))?);
    Ok(())
}

struct Client {
    plan: Rc<Plan>,
    tally: Rc<RefCell<Tally>>,
    connection: Option<Connection>,
}

impl Client {
    async fn run(mut self, index: usize) {
        let part = index as f64 / self.plan.clients as f64;
        tokio::time::sleep(self.plan.ramp().mul_f64(part)).await;
        let streams = self.plan.streams();
        let until = self.tally.borrow().until;
        while Instant::now() < until {
            let well = if streams {
                self.stream().await
            } else {
                self.unary().await
            };
            if !well {
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }

    async fn unary(&mut self) -> bool {
        let sent_at = Instant::now();
        let outcome = self.exchange(&mut Unread).await;
        self.count(sent_at, outcome)
    }

    async fn stream(&mut self) -> bool {
        let tally = Rc::clone(&self.tally);
        let mark = Events::mark();
        let mut events = Events::new(&tally, &mark);
        let sent_at = Instant::now();
        let outcome = self.exchange(&mut events).await;
        let good = outcome.as_ref().is_ok_and(|answer| is_good(answer.status));
        if good && (events.chunks != self.plan.chunks || !events.ended) {
            tally.borrow_mut().errors.short += 1;
        }
        self.count(sent_at, outcome)
    }

    async fn exchange(&mut self, sink: &mut impl client::Sink) -> Result<Answer, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.plan.target).await?,
        };
        let answer = connection.exchange(&self.plan.request, sink).await?;
        if answer.keep {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    /// Enters one outcome; true when it was good.
    fn count(&self, sent_at: Instant, outcome: Result<Answer, Failure>) -> bool {
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Ok(answer) if is_good(answer.status) => {
                tally.answered(sent_at, Instant::now(), &answer);
                return true;
            }
            Ok(_) => tally.refused(),
            Err(failure) => tally.failed(failure),
        }
        false
    }
}

fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Opens all connections and holds them.
async fn hold(plan: &Plan) -> Result<(), String> {
    let request = format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", plan.target);
    let mut held = Vec::with_capacity(plan.clients);
    for _ in 0..plan.clients {
        let Ok(mut connection) = Connection::open(&plan.target).await else {
            continue;
        };
        let answer = connection.exchange(request.as_bytes(), &mut Unread).await;
        if answer.is_ok_and(|answer| answer.keep && is_good(answer.status)) {
            held.push(connection);
        }
    }
    println!("{{\"held\":{}}}", held.len());
    tokio::time::sleep(plan.window).await;
    Ok(())
}
