//! The muxer's bounds: caps, windows, flushes, and the time a close takes.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use super::{
    super::yamux::{MuxConfig, Side, WINDOW_BYTES},
    pipe::{fill, pair, run, small, stream_pair},
};

#[tokio::test]
async fn streams_above_the_inbound_cap_are_reset_and_the_others_live() {
    let config = MuxConfig {
        inbound_max: 20,
        ..small()
    };
    let (left, mut right) = pair(&config);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let mut stream = left.open().await;
        stream.write_all(b"?").await.unwrap();
        ours.push(stream);
    }
    for _ in 0..20 {
        let mut stream = right.accept().await;
        stream.write_all(b"!").await.unwrap();
        theirs.push(stream);
    }
    for (n, stream) in ours.iter_mut().enumerate() {
        let answer = stream.read_u8().await;
        match n {
            0..20 => assert_eq!(answer.unwrap(), b'!'),
            _ => assert_eq!(answer.unwrap_err().kind(), ErrorKind::ConnectionReset),
        }
    }
    drop(theirs.pop());
    let mut next = left.open().await;
    next.write_all(b"?").await.unwrap();
    assert_eq!(right.accept().await.read_u8().await.unwrap(), b'?');
}

#[tokio::test(start_paused = true)]
async fn closing_takes_one_second_at_most_when_the_peer_reads_nothing() {
    let (near, far) = tokio::io::duplex(1024);
    let mut left = run(near, &small(), Side::Dialer);
    let mut stream = left.open().await;
    fill(&mut stream).await;
    let begun = tokio::time::Instant::now();
    left.close();
    left.task.await.unwrap().unwrap();
    assert_eq!(begun.elapsed().as_secs(), 1);
    drop(far);
}

#[tokio::test]
async fn a_stalled_reader_holds_one_window() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, _theirs) = stream_pair(&mut left, &mut right).await;
    // The one byte that was read is not credited yet.
    assert_eq!(fill(&mut ours).await, WINDOW_BYTES - 1);
}

#[tokio::test]
async fn a_window_grows_by_no_more_than_the_extra_of_the_connection() {
    let extra = 1 << 20;
    let config = MuxConfig {
        window_extra_bytes: extra,
        ..small()
    };
    let (mut left, mut right) = pair(&config);
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    let total = 64 << 20;
    let reader = tokio::spawn(async move {
        let mut block = vec![0; 1 << 20];
        let mut read = 0;
        while read < total {
            read += theirs.read(&mut block).await.unwrap();
        }
        theirs
    });
    ours.write_all(&vec![7; total]).await.unwrap();
    let _stalled = reader.await.unwrap();
    assert!(fill(&mut ours).await <= WINDOW_BYTES + extra);
}

/// Counts the flushes that reach the pipe.
struct Counted {
    io: DuplexStream,
    flushes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn streams_that_write_in_the_same_pass_share_one_flush() {
    let flushes = Arc::new(AtomicUsize::new(0));
    let (near, far) = tokio::io::duplex(1 << 20);
    let near = Counted {
        io: near,
        flushes: flushes.clone(),
    };
    let mut left = run(near, &small(), Side::Dialer);
    let mut right = run(far, &small(), Side::Listener);
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let (ours, theirs) = stream_pair(&mut left, &mut right).await;
        writers.push(ours);
        readers.push(theirs);
    }
    let before = flushes.load(Ordering::Relaxed);
    let mut tasks = Vec::new();
    for mut writer in writers {
        tasks.push(tokio::spawn(async move {
            writer.write_all(b"chunk").await.unwrap();
            writer
        }));
    }
    for mut reader in readers {
        reader.read_exact(&mut [0; 5]).await.unwrap();
    }
    let flushed = flushes.load(Ordering::Relaxed) - before;
    assert!(flushed <= 3, "{flushed} flushes for 50 chunks");
    drop(tasks);
}
