//! What a peer may do to the muxer, frame by frame, and what it is told.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use super::{
    super::yamux::{ACK_BACKLOG, MuxConfig, Side, WINDOW_BYTES},
    pipe::{End, frame, run, small},
};

const DATA: u8 = 0;
const UPDATE: u8 = 1;
const PING: u8 = 2;
const GO_AWAY: u8 = 3;
const SYN: u16 = 1;
const ACK: u16 = 2;
const FIN: u16 = 4;
const RST: u16 = 8;

fn header(kind: u8, flags: u16, stream: u32, length: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = kind;
    bytes[2..4].copy_from_slice(&flags.to_be_bytes());
    bytes[4..8].copy_from_slice(&stream.to_be_bytes());
    bytes[8..].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn data(flags: u16, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(DATA, flags, stream, payload.len() as u32).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// A listener with a peer that sends whatever bytes it likes.
fn listener(config: &MuxConfig) -> (End, DuplexStream) {
    let (near, raw) = tokio::io::duplex(4 << 20);
    (run(near, config, Side::Listener), raw)
}

#[tokio::test]
async fn who_breaks_the_protocol_is_told_so_and_loses_the_connection() {
    let too_much = vec![0; WINDOW_BYTES + 1];
    let cases = [
        (data(SYN, 1, &too_much), "more data than its window allows"),
        (
            [data(SYN, 1, b"a"), data(SYN, 1, b"b")].concat(),
            "the number of another",
        ),
        (
            [data(SYN | FIN, 1, b"a"), data(0, 1, b"b")].concat(),
            "data behind the end",
        ),
        (data(SYN, 2, b"a"), "not its to give"),
        (data(SYN, 0, b"a"), "not its to give"),
        (header(4, 0, 0, 0).to_vec(), "unknown type"),
        ([1; 12].to_vec(), "unknown version"),
    ];
    for (bytes, why) in cases {
        let (end, mut raw) = listener(&small());
        raw.write_all(&bytes).await.unwrap();
        let error = end.task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(why), "{error}");
        let (last, _) = frame(&mut raw).await;
        assert_eq!(last, header(GO_AWAY, 0, 0, 1), "{why}");
        assert_eq!(raw.read(&mut [0; 1]).await.unwrap(), 0, "{why}");
    }
}

#[tokio::test]
async fn who_does_not_read_the_answers_to_its_frames_is_given_up() {
    let (near, mut raw) = tokio::io::duplex(64 << 10);
    let end = run(near, &small(), Side::Listener);
    // Each is answered by a reset.
    let of_no_stream = data(0, 1, b"a").repeat(1000);
    while raw.write_all(&of_no_stream).await.is_ok() {}
    let error = end.task.await.unwrap().unwrap_err();
    assert!(
        error.to_string().contains("does not read the answers"),
        "{error}"
    );
}

#[tokio::test]
async fn a_fin_counts_after_the_bytes_of_its_own_frame() {
    let (mut end, mut raw) = listener(&small());
    raw.write_all(&header(DATA, SYN | FIN, 1, 6)).await.unwrap();
    let mut stream = end.accept().await;
    for piece in [b"ab", b"cd", b"ef"] {
        raw.write_all(piece).await.unwrap();
        let mut got = [0; 2];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, piece);
    }
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_fin_that_came_is_the_end_also_when_the_connection_is_lost_behind_it() {
    let (mut end, mut raw) = listener(&small());
    raw.write_all(&data(SYN | FIN, 1, b"all")).await.unwrap();
    raw.write_all(&data(SYN, 3, b"not all")).await.unwrap();
    let (mut whole, mut cut) = (end.accept().await, end.accept().await);
    drop(raw);
    assert!(end.task.await.unwrap().is_err());
    let mut got = String::new();
    whole.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "all");
    let mut got = Vec::new();
    let error = cut.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(
        (&got[..], error.kind()),
        (&b"not all"[..], ErrorKind::ConnectionReset)
    );
}

#[tokio::test]
async fn frames_of_streams_nobody_knows_are_passed_over() {
    let (mut end, mut raw) = listener(&small());
    let strays = [
        data(0, 99, &[7; 100_000]),
        header(UPDATE, 0, 99, u32::MAX).to_vec(),
        header(UPDATE, RST, 98, 4098).to_vec(),
        header(DATA, FIN, 97, 0).to_vec(),
        header(PING, ACK, 0, 5).to_vec(),
        data(SYN, 1, b"hello"),
    ];
    raw.write_all(&strays.concat()).await.unwrap();
    let mut got = [0; 5];
    end.accept().await.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
}

#[tokio::test]
async fn the_code_of_a_reset_is_no_credit_and_its_payload_no_data() {
    let (mut end, mut raw) = listener(&small());
    raw.write_all(&data(SYN, 1, b"before")).await.unwrap();
    raw.write_all(&data(RST, 1, b"after")).await.unwrap();
    raw.write_all(&data(SYN, 3, b"other")).await.unwrap();
    let (mut stream, mut other) = (end.accept().await, end.accept().await);
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(
        (&got[..], error.kind()),
        (&b"before"[..], ErrorKind::ConnectionReset)
    );
    let mut got = [0; 5];
    other.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"other");
}

#[tokio::test]
async fn any_amount_of_credit_is_taken() {
    let (mut end, mut raw) = listener(&small());
    raw.write_all(&header(UPDATE, SYN, 1, u32::MAX))
        .await
        .unwrap();
    for _ in 0..3 {
        raw.write_all(&header(UPDATE, 0, 1, u32::MAX))
            .await
            .unwrap();
    }
    let mut stream = end.accept().await;
    let body = vec![7; 3 * WINDOW_BYTES];
    let writing = tokio::spawn(async move {
        stream.write_all(&body).await.unwrap();
        stream
    });
    let mut got = 0;
    while got < 3 * WINDOW_BYTES {
        got += frame(&mut raw).await.1.len();
    }
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn a_stream_beyond_the_backlog_opens_when_another_is_taken_up() {
    let (near, mut raw) = tokio::io::duplex(4 << 20);
    let end = run(near, &small(), Side::Dialer);
    let mut open = Vec::new();
    for _ in 0..ACK_BACKLOG {
        let mut stream = end.open().await;
        stream.write_all(b"x").await.unwrap();
        open.push(stream);
    }
    let next = end.open();
    tokio::pin!(next);
    for _ in 0..100 {
        assert!(futures::poll!(&mut next).is_pending());
        tokio::task::yield_now().await;
    }
    raw.write_all(&header(UPDATE, ACK, 1, 0)).await.unwrap();
    let mut next = next.await;
    next.write_all(b"x").await.unwrap();
    let last = 2 * ACK_BACKLOG as u32 + 1;
    while frame(&mut raw).await.0 != header(DATA, SYN, last, 1) {}
}

#[tokio::test]
async fn an_opened_stream_that_nobody_used_is_not_told_of() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let end = run(near, &small(), Side::Dialer);
    drop(end.open().await);
    let mut used = end.open().await;
    used.write_all(b"x").await.unwrap();
    assert_eq!(frame(&mut raw).await.0, header(DATA, SYN, 3, 1));
}

#[tokio::test]
async fn a_close_sends_what_was_written_and_then_says_goodbye() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let mut end = run(near, &small(), Side::Dialer);
    let mut stream = end.open().await;
    stream.write_all(b"last words").await.unwrap();
    end.close();
    end.task.await.unwrap().unwrap();
    assert_eq!(frame(&mut raw).await.1, b"last words");
    assert_eq!(frame(&mut raw).await.0, header(GO_AWAY, 0, 0, 0));
    assert_eq!(raw.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_goodbye_of_the_peer_ends_the_connection() {
    let (end, mut raw) = listener(&small());
    raw.write_all(&header(GO_AWAY, 0, 0, 0)).await.unwrap();
    let error = end.task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer closed the connection");
}

/// A pipe whose other end reads no more, as a socket that answers a write with a reset.
struct Unread(DuplexStream);

impl AsyncRead for Unread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Unread {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_came_before_a_write_failed_is_read() {
    let (near, mut raw) = tokio::io::duplex(1 << 20);
    let mut end = run(Unread(near), &small(), Side::Listener);
    raw.write_all(&data(SYN, 1, b"beg")).await.unwrap();
    let mut stream = end.accept().await;
    stream.read_exact(&mut [0; 3]).await.unwrap();
    // The rest and the end lie in the socket when a write finds out that nobody reads.
    stream.write_all(b"!").await.unwrap();
    raw.write_all(&data(FIN, 1, b"end")).await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"end");
    assert!(end.task.await.unwrap().is_err());
}
