//! A backend that follows a script, connection by connection, and counts what it sees.

use crate::bench::soon;
use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

#[derive(Default)]
pub struct Seen {
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    requested: Notify,
    closed: Notify,
}

pub struct Backend {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    pub async fn new<F, S>(script: S) -> Backend
    where
        S: Fn(Serving) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let counted = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let number = counted.connections.fetch_add(1, Ordering::SeqCst);
                let seen = counted.clone();
                tokio::spawn(script(Serving {
                    stream,
                    number,
                    seen,
                    buf: Vec::new(),
                }));
            }
        });
        Backend {
            address,
            seen,
            task,
        }
    }

    /// Answers every request of every connection with this.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Backend {
        let answer = Arc::new(answer.into());
        Backend::new(move |mut serving| {
            let answer = answer.clone();
            async move {
                while serving.request().await.is_some() {
                    if serving.stream.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            }
        })
        .await
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Until a request has come that nobody waited for yet.
    pub async fn requested(&self) {
        soon("a request at the backend", self.seen.requested.notified()).await;
    }

    /// Until a script has seen its connection closed.
    pub async fn closed(&self) {
        self.seen.closed.notified().await;
    }
}

pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn field(&self, name: &str) -> Vec<&str> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }
}

pub struct Serving {
    pub stream: TcpStream,
    /// Which connection this is, from 0.
    pub number: usize,
    pub seen: Arc<Seen>,
    buf: Vec<u8>,
}

impl Serving {
    /// The next request, whole; `None` when the connection ends before.
    pub async fn request(&mut self) -> Option<Request> {
        let end = loop {
            if let Some(at) = self.buf.windows(4).position(|part| part == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.buf.drain(..end).collect()).unwrap();
        let mut request = Request {
            head,
            body: Vec::new(),
        };
        let length = request.field("content-length")[0].parse().unwrap();
        while self.buf.len() < length {
            self.more().await?;
        }
        request.body = self.buf.drain(..length).collect();
        self.seen.requests.fetch_add(1, Ordering::SeqCst);
        self.seen.requested.notify_one();
        Some(request)
    }

    async fn more(&mut self) -> Option<()> {
        let mut room = [0; 16 << 10];
        match self.stream.read(&mut room).await {
            Ok(n) if n > 0 => self.buf.extend_from_slice(&room[..n]),
            _ => return None,
        }
        Some(())
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    pub async fn send_all(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Waits for the other side to close, and tells of it.
    pub async fn closed(&mut self) {
        let mut room = [0; 1024];
        while matches!(self.stream.read(&mut room).await, Ok(n) if n > 0) {}
        self.seen.closed.notify_one();
    }

    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

pub fn sized(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub const SSE_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

pub fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

pub const LAST_CHUNK: &str = "0\r\n\r\n";
