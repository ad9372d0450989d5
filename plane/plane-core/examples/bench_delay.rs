//! How does a link behave over a distance? Passes TCP connections on and gives every byte to the other side
//! `--delay-us` after it came, in both directions, whatever else is under way: latency without a limit of bandwidth.
//!
//! Options: `--listen HOST:PORT`, `--target HOST:PORT`, `--delay-us` (each way). One thread.

#[path = "bench_shared/args.rs"]
mod args;

use std::process::ExitCode;
use std::time::Duration;

use args::Args;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

const READ_BYTES: usize = 64 * 1024;
/// Reads under way in one direction: what a fast line of this length holds, and a bound for memory.
const READS_MAX: usize = 16 * 1024;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench_delay: {sentence}");
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<(), String> {
    let mut args = Args::read()?;
    let listen: String = args.take("listen", "127.0.0.1:8889".to_owned())?;
    let target: String = args.take("target", "127.0.0.1:8888".to_owned())?;
    let delay = Duration::from_micros(args.take("delay-us", 25_000)?);
    args.finish()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(serve(&listen, target, delay))
}

async fn serve(listen: &str, target: String, delay: Duration) -> Result<(), String> {
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    println!("bench_delay listening on {listen}");
    loop {
        let (near, _) = listener
            .accept()
            .await
            .map_err(|error| format!("cannot accept: {error}"))?;
        let target = target.clone();
        // A side that goes away is no event here: the other side sees its connection end.
        tokio::spawn(async move { join(near, &target, delay).await.ok() });
    }
}

async fn join(near: TcpStream, target: &str, delay: Duration) -> std::io::Result<()> {
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    carry(near_in, far_out, delay);
    carry(far_in, near_out, delay);
    Ok(())
}

/// Carries one direction, until its end has come through as well.
fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (put, mut line) = mpsc::channel::<(Instant, Bytes)>(READS_MAX);
    tokio::spawn(async move {
        let mut input = BytesMut::new();
        loop {
            input.reserve(READ_BYTES);
            let read = from.read_buf(&mut input).await;
            let ended = !matches!(read, Ok(1..));
            // An end travels as long as a byte does.
            if put
                .send((Instant::now() + delay, input.split().freeze()))
                .await
                .is_err()
                || ended
            {
                break;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((at, bytes)) = line.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        to.shutdown().await.ok();
    });
}
