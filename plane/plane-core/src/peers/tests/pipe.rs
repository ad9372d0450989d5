//! Two muxers over a memory pipe, each polled by a task as libp2p's connection would.

use std::{future::poll_fn, io, task::Poll};

use futures::FutureExt;
use libp2p::core::muxing::StreamMuxerExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

use super::super::yamux::{MuxConfig, Muxer, Side, Substream};

pub(super) type TestStream = Compat<Substream>;

/// One end of a pipe with a muxer on it.
pub(super) struct End {
    opens: mpsc::UnboundedSender<oneshot::Sender<TestStream>>,
    pub(super) inbound: mpsc::UnboundedReceiver<TestStream>,
    close: Option<oneshot::Sender<()>>,
    pub(super) task: JoinHandle<io::Result<()>>,
}

impl End {
    pub(super) async fn open(&self) -> TestStream {
        let (reply, opened) = oneshot::channel();
        self.opens.send(reply).expect("the muxer is gone");
        opened.await.expect("the muxer opens no streams")
    }

    pub(super) async fn accept(&mut self) -> TestStream {
        self.inbound.recv().await.expect("the muxer is gone")
    }

    pub(super) fn close(&mut self) {
        self.close
            .take()
            .expect("closed twice")
            .send(())
            .expect("the muxer is gone");
    }
}

pub(super) fn pair(config: &MuxConfig) -> (End, End) {
    let (left, right) = tokio::io::duplex(1 << 20);
    (
        run(left, config, Side::Dialer),
        run(right, config, Side::Listener),
    )
}

pub(super) fn run<C>(io: C, config: &MuxConfig, side: Side) -> End
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut muxer = Muxer::new(io.compat(), config.clone(), side);
    let (opens, mut wanted) = mpsc::unbounded_channel::<oneshot::Sender<TestStream>>();
    let (accepted, inbound) = mpsc::unbounded_channel();
    let (close, mut closing) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let mut open_reply = None;
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(Err(error)) = muxer.poll_unpin(cx) {
                    return Poll::Ready(Err(error));
                }
                while let Poll::Ready(stream) = muxer.poll_inbound_unpin(cx) {
                    let _ = accepted.send(stream?.compat());
                }
                if matches!(
                    std::pin::Pin::new(&mut closing).poll(cx),
                    Poll::Ready(Ok(()))
                ) {
                    return Poll::Ready(Ok(()));
                }
                if open_reply.is_none() {
                    match wanted.poll_recv(cx) {
                        Poll::Ready(Some(reply)) => open_reply = Some(reply),
                        _ => return Poll::Pending,
                    }
                }
                match muxer.poll_outbound_unpin(cx)? {
                    Poll::Ready(stream) => {
                        let reply = open_reply.take().expect("a stream nobody asked for");
                        let _ = reply.send(stream.compat());
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await?;
        poll_fn(|cx| muxer.poll_close_unpin(cx)).await
    });
    End {
        opens,
        inbound,
        close: Some(close),
        task,
    }
}

pub(super) fn small() -> MuxConfig {
    MuxConfig {
        inbound_max: 64,
        window_extra_bytes: 0,
        ..MuxConfig::default()
    }
}

pub(super) async fn stream_pair(left: &mut End, right: &mut End) -> (TestStream, TestStream) {
    let mut ours = left.open().await;
    ours.write_all(b"!").await.unwrap();
    let mut theirs = right.accept().await;
    assert_eq!(theirs.read_u8().await.unwrap(), b'!');
    (ours, theirs)
}

/// Writes until no more is taken while the other end does not read; returns how much was taken.
pub(super) async fn fill(stream: &mut TestStream) -> usize {
    let block = [7; 16 << 10];
    let mut taken = 0;
    let mut idle = 0;
    while idle < 100 {
        match stream.write(&block).now_or_never() {
            Some(written) => {
                taken += written.unwrap();
                idle = 0;
            }
            None => {
                idle += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    taken
}

/// The next frame that is no ping: header and payload as they stand on the wire.
pub(super) async fn frame(raw: &mut DuplexStream) -> ([u8; 12], Vec<u8>) {
    loop {
        let mut header = [0; 12];
        raw.read_exact(&mut header).await.expect("no frame came");
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut payload = vec![0; if header[1] == 0 { length as usize } else { 0 }];
        raw.read_exact(&mut payload).await.expect("a frame was cut");
        if header[1] != 2 {
            return (header, payload);
        }
    }
}
