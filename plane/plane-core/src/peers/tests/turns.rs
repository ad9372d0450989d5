//! Whose turn it is on a link that takes less than its streams want to send.

use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{
    super::yamux::Side,
    pipe::{End, TestStream, frame, run, small},
};

/// A listener whose peer has opened so many streams, with any amount of credit, over a small pipe.
async fn streams(count: u32) -> (End, DuplexStream, Vec<TestStream>) {
    let (near, mut raw) = tokio::io::duplex(32 << 10);
    let mut end = run(near, &small(), Side::Listener);
    let mut streams = Vec::new();
    for n in 0..count {
        let mut open = vec![0, 1, 0, 1];
        open.extend_from_slice(&(2 * n + 1).to_be_bytes());
        open.extend_from_slice(&u32::MAX.to_be_bytes());
        raw.write_all(&open).await.unwrap();
        streams.push(end.accept().await);
    }
    (end, raw, streams)
}

/// Writes as much as is taken.
fn flood(mut stream: TestStream) {
    tokio::spawn(async move { while stream.write_all(&[7; 64 << 10]).await.is_ok() {} });
}

/// The stream of the next frame, and its payload.
async fn next(raw: &mut DuplexStream) -> (u32, Vec<u8>) {
    let (header, payload) = frame(raw).await;
    let [_, _, _, _, stream @ .., _, _, _, _] = header;
    (u32::from_be_bytes(stream), payload)
}

async fn fills_before_a_word_of_another(floods: u32) {
    let (_end, mut raw, mut all) = streams(floods + 1).await;
    let mut quiet = all.pop().unwrap();
    all.into_iter().for_each(flood);
    for _ in 0..100 {
        next(&mut raw).await;
    }
    let word = tokio::spawn(async move {
        quiet.write_all(b"word").await.unwrap();
        quiet
    });
    let mut before = 0;
    loop {
        let (stream, payload) = next(&mut raw).await;
        if stream == 2 * floods + 1 {
            break;
        }
        before += payload.len();
        assert!(before < 1 << 20, "the word still waits");
    }
    drop(word);
}

#[tokio::test]
async fn a_word_passes_a_stream_that_never_stops() {
    fills_before_a_word_of_another(1).await;
}

#[tokio::test]
async fn a_word_passes_many_streams_that_never_stop() {
    fills_before_a_word_of_another(20).await;
}

#[tokio::test]
async fn streams_that_never_stop_share_the_link() {
    let (_end, mut raw, all) = streams(20).await;
    all.into_iter().for_each(flood);
    let mut sent = [0; 20];
    for _ in 0..2000 {
        let (stream, payload) = next(&mut raw).await;
        sent[(stream / 2) as usize] += payload.len();
    }
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(2 * least > *most, "{sent:?}");
}
