//! How much does a server carry, and how long does each request and each chunk take? Sends chats, counts what comes
//! back, and prints one line of JSON. One thread, HTTP/1.1 on kept connections.
//!
//! `--mode`:
//! - `unary`: `--clients` clients, each sending its next request when the last answer has come.
//! - `streams`: `--clients` streams at a time, each of `--chunks` chunks `--interval-us` apart. 0 is saturation: as fast
//!   as the reader reads. They begin one after the other over the length of a stream; the window comes after that.
//! - `idle`: opens `--clients` connections, sends a chat on each, prints a line when all are answered, and holds them
//!   for `--seconds`.
//! - `open`: opens `--clients` streams one after the other, prints a line when all have their first chunk or cannot get
//!   it, and reads on for `--seconds`.
//!
//! Further options: `--target HOST:PORT`, `--seconds`, `--prompt-bytes` (of the whole request body), `--body-bytes` (of
//! a whole answer), `--chunk-bytes`, `--delay-us` (before an answer begins), `--model`, `--requests` (of each client; 0
//! for any number), `--journal FILE` (a line for each request: when it was sent, when its first chunk came and when it
//! ended, in nanoseconds since 1970, and its status, 0 for an answer that did not come whole). A client whose request failed pauses a little, so
//! that failing fast does not look like speed.

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
#[path = "bench_shared/open.rs"]
mod open;
#[path = "bench_shared/tally.rs"]
mod tally;

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use args::Args;
use client::{Answer, Connection, Failure, Unread};
use clock::now_ns;
use events::Events;
use tally::{Entry, Tally};
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
            "idle" => open::connections(&plan).await,
            "open" => open::streams(Rc::new(plan)).await,
            other => Err(format!(
                "--mode cannot be {other:?}; it is unary, streams, idle or open"
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
    requests: usize,
    journal: String,
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
        let delay_us: u64 = args.take("delay-us", 0)?;
        let requests = args.take("requests", 0)?;
        let journal = args.take("journal", String::new())?;
        let model: String = args.take("model", "bench-model".to_owned())?;
        args.finish()?;
        let wanted = format!(
            "chunks={chunks} interval_us={interval_us} chunk_bytes={chunk_bytes} body_bytes={body_bytes} \
             delay_us={delay_us}"
        );
        let body = chat(
            &model,
            mode == "streams" || mode == "open",
            prompt_bytes,
            &wanted,
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n\
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
            requests,
            journal,
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
fn chat(model: &str, stream: bool, size_bytes: usize, wanted: &str) -> Vec<u8> {
    let start = format!(
        "{{\"model\":\"{model}\",\"stream\":{stream},\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":\"bench: {wanted}; "
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
    tally.borrow_mut().journal = (!plan.journal.is_empty()).then(Vec::new);
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
    if let Some(journal) = &tally.journal {
        write_journal(&plan.journal, journal)?;
    }
    let line = serde_json::to_string(&tally.report(plan.window));
    println!("{}", line.map_err(|error| format!("no report: {error}"))?);
    Ok(())
}

fn write_journal(path: &str, journal: &[Entry]) -> Result<(), String> {
    let mut text = String::new();
    for entry in journal {
        text.push_str(&format!(
            "{} {} {} {}\n",
            entry.sent_ns, entry.first_ns, entry.ended_ns, entry.status
        ));
    }
    std::fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))
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
        let mut sent = 0;
        while Instant::now() < until && (self.plan.requests == 0 || sent < self.plan.requests) {
            sent += 1;
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
        let (sent_at, sent_ns) = (Instant::now(), now_ns());
        let outcome = self.exchange(&mut Unread).await;
        self.note(sent_ns, None, &outcome, true);
        self.count(sent_at, outcome)
    }

    async fn stream(&mut self) -> bool {
        let tally = Rc::clone(&self.tally);
        let mark = Events::mark();
        let mut events = Events::new(&tally, &mark);
        let (sent_at, sent_ns) = (Instant::now(), now_ns());
        let outcome = self.exchange(&mut events).await;
        let good = outcome.as_ref().is_ok_and(|answer| is_good(answer.status));
        let whole = events.chunks == self.plan.chunks && events.ended;
        if good && !whole {
            tally.borrow_mut().errors.short += 1;
        }
        self.note(sent_ns, events.first_ns, &outcome, whole || !good);
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

    fn note(
        &self,
        sent_ns: u64,
        first_ns: Option<u64>,
        outcome: &Result<Answer, Failure>,
        whole: bool,
    ) {
        let status = match outcome {
            Ok(answer) if whole => answer.status,
            _ => 0,
        };
        self.tally.borrow_mut().note(sent_ns, first_ns, status);
    }

    /// Enters one outcome; true when it was good.
    fn count(&self, sent_at: Instant, outcome: Result<Answer, Failure>) -> bool {
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Ok(answer) if is_good(answer.status) => {
                tally.answered(sent_at, Instant::now(), &answer);
                return true;
            }
            Ok(answer) => tally.refused(answer.status),
            Err(failure) => tally.failed(failure),
        }
        false
    }
}

fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}
