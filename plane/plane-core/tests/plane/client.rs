//! A client that sends exactly the bytes it is told to.

use crate::bench::soon;
use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub struct Client {
    pub stream: TcpStream,
    pub buf: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
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

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub fn post(body: &str) -> String {
    format!(
        "POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            buf: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Leaves without a word: the other side sees a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    pub async fn more(&mut self) -> io::Result<usize> {
        let mut room = vec![0; 64 << 10];
        let n = soon("bytes for the client", self.stream.read(&mut room)).await?;
        self.buf.extend_from_slice(&room[..n]);
        Ok(n)
    }

    /// Reads until these bytes have come, and takes all up to their end.
    pub async fn until(&mut self, needle: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self
                .buf
                .windows(needle.len())
                .position(|part| part == needle)
            {
                return self.buf.drain(..at + needle.len()).collect();
            }
            let n = self.more().await.unwrap();
            let so_far = String::from_utf8_lossy(&self.buf);
            assert!(
                n > 0,
                "ended without {:?}: {so_far:?}",
                String::from_utf8_lossy(needle)
            );
        }
    }

    pub async fn head(&mut self) -> Answer {
        let head = String::from_utf8(self.until(b"\r\n\r\n").await).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head,
            body: Vec::new(),
        }
    }

    /// A whole answer, framed by its own head. An answer without framing ends with the connection.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        if answer.field("transfer-encoding") == ["chunked"] {
            while let Some(chunk) = self.chunk().await {
                answer.body.extend_from_slice(&chunk);
            }
        } else if let [length] = answer.field("content-length")[..] {
            let length = length.parse().unwrap();
            while self.buf.len() < length {
                assert!(self.more().await.unwrap() > 0, "cut short");
            }
            answer.body = self.buf.drain(..length).collect();
        } else if !matches!(answer.status, 204 | 304) {
            answer.body = self.rest().await.unwrap();
        }
        answer
    }

    /// The next chunk; `None` for the last.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n").await;
        let size = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.buf.len() < size + 2 {
            assert!(self.more().await.unwrap() > 0, "cut short");
        }
        let data = self.buf.drain(..size).collect();
        assert_eq!(&self.buf.drain(..2).collect::<Vec<u8>>(), b"\r\n");
        (size > 0).then_some(data)
    }

    /// All that comes until the other side closes.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.more().await? > 0 {}
        Ok(std::mem::take(&mut self.buf))
    }
}
