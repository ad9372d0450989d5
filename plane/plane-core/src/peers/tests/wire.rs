//! Whatever is written arrives, over pipes of any size; whatever bytes come, the muxer stands.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    super::yamux::{MuxConfig, Side},
    pipe::{TestStream, run, small},
};

/// One stream: the sizes it is written in, and the largest size it is read in.
#[derive(Clone, Debug)]
struct Plan {
    writes: Vec<usize>,
    read_max: usize,
    from_dialer: bool,
    pauses: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let writes = vec(prop_oneof![1..200usize, 1..40_000usize], 1..30);
    (writes, 1..20_000usize, any::<bool>(), any::<bool>()).prop_map(
        |(writes, read_max, from_dialer, pauses)| Plan {
            writes,
            read_max,
            from_dialer,
            pauses,
        },
    )
}

/// The byte at a place of a stream's content.
fn content(at: usize) -> u8 {
    (at % 251) as u8
}

async fn write(mut stream: TestStream, plan: Plan) {
    let mut at = 0;
    for size in &plan.writes {
        let piece: Vec<u8> = (at..at + size).map(content).collect();
        stream.write_all(&piece).await.unwrap();
        at += size;
        if plan.pauses {
            tokio::task::yield_now().await;
        }
    }
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

async fn read(mut stream: TestStream, read_max: usize) -> usize {
    let mut room = vec![0; read_max];
    let mut at = 0;
    loop {
        let bytes = stream.read(&mut room).await.unwrap();
        if bytes == 0 {
            stream.shutdown().await.unwrap();
            return at;
        }
        for byte in &room[..bytes] {
            assert_eq!(*byte, content(at));
            at += 1;
        }
    }
}

async fn all_arrives(pipe_bytes: usize, config: MuxConfig, plans: Vec<Plan>) {
    let (near, far) = tokio::io::duplex(pipe_bytes);
    let mut dialer = run(near, &config, Side::Dialer);
    let mut listener = run(far, &config, Side::Listener);
    let mut tasks = Vec::new();
    for plan in plans {
        let (from, to) = match plan.from_dialer {
            true => (&mut dialer, &mut listener),
            false => (&mut listener, &mut dialer),
        };
        let (total, read_max) = (plan.writes.iter().sum::<usize>(), plan.read_max);
        let writing = tokio::spawn(write(from.open().await, plan));
        let stream = to.accept().await;
        tasks.push((total, writing, tokio::spawn(read(stream, read_max))));
    }
    for (total, writing, reading) in tasks {
        writing.await.unwrap();
        assert_eq!(reading.await.unwrap(), total);
    }
}

fn block_on<F: Future<Output = ()>>(future: F) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let within = Duration::from_secs(60);
    runtime.block_on(async {
        tokio::time::timeout(within, future)
            .await
            .expect("it hangs")
    });
}

/// Headers that look like frames, with small numbers, so that they meet streams that exist.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..64u32, Just(256 << 10), any::<u32>()];
    let one = (0..5u8, 0..16u16, 0..6u32, length, vec(any::<u8>(), 0..80));
    vec(one, 0..40).prop_map(|frames| {
        let mut bytes = Vec::new();
        for (kind, flags, stream, length, payload) in frames {
            bytes.extend_from_slice(&[0, kind]);
            bytes.extend_from_slice(&flags.to_be_bytes());
            bytes.extend_from_slice(&stream.to_be_bytes());
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&payload);
        }
        bytes
    })
}

async fn stands(bytes: Vec<u8>) {
    let (near, mut raw) = tokio::io::duplex(1 << 20);
    let mut end = run(near, &small(), Side::Listener);
    raw.write_all(&bytes).await.unwrap();
    drop(raw);
    // Whoever reads gets to an end, and so does the connection.
    while let Some(mut stream) = end.inbound.recv().await {
        let _ = stream.write(b"answer").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(end.task.await.expect("it panicked").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_that_is_written_arrives(
        pipe_bytes in prop_oneof![1..100usize, 100..200_000usize],
        extra in prop_oneof![Just(0usize), 0..4_000_000usize],
        frame_bytes in 1..70_000usize,
        plans in vec(plan(), 1..12),
    ) {
        // A pipe of a few bytes takes as many turns as there are bytes.
        let pipe_bytes = pipe_bytes.max(plans.iter().flat_map(|plan| &plan.writes).sum::<usize>() / 5000);
        let config = MuxConfig {
            window_extra_bytes: extra,
            inbound_window_bytes: 2 << 20,
            frame_bytes,
            ..small()
        };
        block_on(all_arrives(pipe_bytes, config, plans));
    }
}

proptest! {
    #[test]
    fn whatever_frames_come_the_muxer_stands(bytes in frames()) {
        block_on(stands(bytes));
    }

    #[test]
    fn whatever_bytes_come_the_muxer_stands(bytes in vec(any::<u8>(), 0..600)) {
        block_on(stands(bytes));
    }
}
