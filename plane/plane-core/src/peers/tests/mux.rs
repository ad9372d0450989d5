//! The FIN and RST matrix, between two of our muxers.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    super::yamux::WINDOW_BYTES,
    pipe::{End, fill, pair, small, stream_pair},
};

#[tokio::test]
async fn a_fin_reads_as_eof_and_the_answer_still_arrives() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    ours.write_all(b"request").await.unwrap();
    ours.shutdown().await.unwrap();
    let mut request = String::new();
    theirs.read_to_string(&mut request).await.unwrap();
    assert_eq!(request, "request");
    theirs.write_all(b"answer").await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut answer = String::new();
    ours.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn eof_stays_eof_when_it_is_read_again() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    ours.shutdown().await.unwrap();
    assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
    drop(ours);
    assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn bytes_before_a_reset_are_read_first() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    ours.write_all(b"partial").await.unwrap();
    drop(ours);
    let mut got = Vec::new();
    let error = theirs.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(got, b"partial");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_dropped_stream_resets_the_waiting_reader_and_then_the_writer() {
    let (mut left, mut right) = pair(&small());
    let (ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    let reader = tokio::spawn(async move {
        let read = theirs.read(&mut [0; 8]).await;
        (read, theirs.write(b"x").await)
    });
    tokio::task::yield_now().await;
    drop(ours);
    let (read, written) = reader.await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(written.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_dropped_stream_resets_the_stalled_writer() {
    let (mut left, mut right) = pair(&small());
    let (ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    fill(&mut theirs).await;
    let writer = tokio::spawn(async move { theirs.write(b"x").await });
    tokio::task::yield_now().await;
    drop(ours);
    assert_eq!(
        writer.await.unwrap().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_reset_is_told_also_after_our_own_fin() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, theirs) = stream_pair(&mut left, &mut right).await;
    drop(theirs);
    ours.shutdown().await.unwrap();
    let error = ours.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_server_that_breaks_off_after_the_clients_fin_ends_and_loses_nothing_it_said() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    ours.shutdown().await.unwrap();
    assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
    theirs.write_all(b"half an ans").await.unwrap();
    drop(theirs);
    let mut got = Vec::new();
    ours.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"half an ans");
}

#[tokio::test]
async fn who_writes_to_a_stream_that_was_ended_and_left_is_told() {
    let (mut left, mut right) = pair(&small());
    let (mut ours, mut theirs) = stream_pair(&mut left, &mut right).await;
    ours.shutdown().await.unwrap();
    drop(ours);
    assert_eq!(theirs.read(&mut [0; 1]).await.unwrap(), 0);
    let writing = async move { theirs.write_all(&vec![7; 2 * WINDOW_BYTES]).await };
    let written = tokio::time::timeout(Duration::from_secs(5), writing).await;
    let error = written.expect("it waits for credit").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

async fn waiters_of(end: &mut End, other: &mut End) -> [tokio::task::JoinHandle<io::Error>; 2] {
    let (mut reads, reads_peer) = stream_pair(end, other).await;
    let (mut writes, writes_peer) = stream_pair(end, other).await;
    fill(&mut writes).await;
    let waiters = [
        tokio::spawn(async move {
            let _peer = reads_peer;
            reads.read(&mut [0; 8]).await.unwrap_err()
        }),
        tokio::spawn(async move {
            let _peer = writes_peer;
            writes.write_all(b"x").await.unwrap_err()
        }),
    ];
    tokio::task::yield_now().await;
    waiters
}

#[tokio::test]
async fn our_own_close_wakes_readers_and_stalled_writers() {
    let (mut left, mut right) = pair(&small());
    let waiters = waiters_of(&mut left, &mut right).await;
    left.close();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_dropped_muxer_wakes_readers_and_stalled_writers() {
    let (mut left, mut right) = pair(&small());
    let waiters = waiters_of(&mut left, &mut right).await;
    left.task.abort();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn the_loss_of_the_connection_wakes_readers_and_stalled_writers() {
    let (mut left, mut right) = pair(&small());
    let waiters = waiters_of(&mut left, &mut right).await;
    right.task.abort();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().kind(), ErrorKind::ConnectionReset);
    }
}
