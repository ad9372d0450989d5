//! Streams that break off: the client is told in the stream, and the end is not that of a whole one.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk},
    bench::{Bench, forward_with, promptly},
    client::Client,
};
use plane_core::exchange::{BreakKind, Command, ForwardSpec, Outcome};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const SHORT: Duration = Duration::from_millis(100);

/// Says this in the stream and then nothing more, with the connection open or closed.
async fn saying(data: &'static str, closes: bool) -> Backend {
    Backend::new(move |mut serving| async move {
        serving.request().await;
        serving.send(format!("{SSE_HEAD}{}", chunk(data))).await;
        if closes {
            return serving.reset();
        }
        serving.closed().await;
    })
    .await
}

async fn begin(
    bench: &mut Bench,
    backend: &Backend,
    change: impl FnOnce(&mut ForwardSpec),
) -> (Client, std::sync::Arc<plane_core::exchange::Arrival>) {
    let (client, arrival) = bench.asked().await;
    let target = bench.server(backend.address);
    arrival
        .mailbox
        .post(forward_with(&target, |_, spec| change(spec)));
    (client, arrival)
}

/// The data of all chunks, and whether the last chunk came before the close.
async fn all(client: &mut Client) -> (String, bool) {
    client.head().await;
    while !client.buf.ends_with(LAST_CHUNK.as_bytes()) && client.more().await.unwrap() > 0 {
        assert!(client.buf.len() < 1 << 30, "it never ends");
    }
    let wire = String::from_utf8(std::mem::take(&mut client.buf)).unwrap();
    let is_whole = wire.ends_with(LAST_CHUNK);
    let mut data = String::new();
    let mut rest = wire.as_str();
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        data.push_str(&behind[..size]);
        rest = &behind[size + 2..];
    }
    (data, is_whole)
}

#[tokio::test]
async fn a_lost_backend_is_told_in_an_event_of_its_own() {
    let mut bench = Bench::new();
    for (says, expected) in [
        ("data: 1\n\n", "data: 1\n\ndata: {\"error\":\"lost\"}\n\n"),
        (
            "data: {\"half",
            "data: {\"half\n\ndata: {\"error\":\"lost\"}\n\n",
        ),
        ("data: 1\n", "data: 1\n\n\ndata: {\"error\":\"lost\"}\n\n"),
        (": ping\n\n", ": ping\n\ndata: {\"error\":\"lost\"}\n\n"),
    ] {
        for meter in [true, false] {
            let backend = saying(says, true).await;
            let (mut client, arrival) =
                begin(&mut bench, &backend, |spec| spec.meter = meter).await;
            assert_eq!(
                all(&mut client).await,
                (expected.to_owned(), false),
                "{says:?}"
            );
            let (names, finished) = bench.finished(&arrival).await;
            assert_eq!(names, ["head", "started"]);
            assert_eq!(finished.outcome, Outcome::Broken(BreakKind::Lost));
            assert_eq!(finished.usage.is_some(), meter);
            assert_eq!(
                backend.requests(),
                1,
                "after a byte there is no other attempt"
            );
        }
    }
}

#[tokio::test]
async fn an_event_of_ours_has_the_number_behind_the_last_one_that_was_seen() {
    let mut bench = Bench::new();
    for (says, number) in [
        ("data: {\"sequence_number\":41}\n\n", "42"),
        ("data: {\"sequence_number\":41}\n\ndata: {\"half", "42"),
        // Not numbered: as many as have come.
        ("data: {}\n\ndata: {}\n\n", "2"),
        ("data: {}\n\ndata: {\"half", "2"),
        (": ping\n\n", "0"),
    ] {
        for meter in [true, false] {
            let backend = saying(says, true).await;
            let (mut client, arrival) = begin(&mut bench, &backend, |spec| {
                spec.meter = meter;
                spec.sequence_mark = "#".into();
                spec.break_events[BreakKind::Lost as usize] = "data: {\"number\":#}\n\n".into();
            })
            .await;
            let (data, is_whole) = all(&mut client).await;
            let expected = format!("data: {{\"number\":{number}}}\n\n");
            assert!(data.ends_with(&expected) && !is_whole, "{says:?}: {data:?}");
            bench.finished(&arrival).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_written_into_a_compressed_stream_that_breaks() {
    let mut bench = Bench::new();
    let head = SSE_HEAD.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n");
    for coding in ["gzip", "identity"] {
        let head = head.replace("gzip", coding);
        let backend = Backend::new(move |mut serving| {
            let head = head.clone();
            async move {
                serving.request().await;
                serving.send(format!("{head}{}", chunk("compressed"))).await;
                serving.reset();
            }
        })
        .await;
        let (mut client, arrival) = begin(&mut bench, &backend, |_| {}).await;
        let (data, is_whole) = all(&mut client).await;
        assert_eq!(data.contains("lost"), coding == "identity", "{data:?}");
        assert!(data.starts_with("compressed") && !is_whole);
        assert_eq!(
            bench.outcome(&arrival).await,
            Outcome::Broken(BreakKind::Lost)
        );
    }
}

#[tokio::test]
async fn silence_between_two_pieces_is_bounded() {
    let mut bench = Bench::new();
    let backend = saying("data: 1\n\n", false).await;
    let (mut client, arrival) = begin(&mut bench, &backend, |spec| spec.idle = SHORT).await;
    let (data, is_whole) = all(&mut client).await;
    assert_eq!(
        (data.as_str(), is_whole),
        ("data: 1\n\ndata: {\"error\":\"idle\"}\n\n", false)
    );
    promptly("the close", backend.closed()).await;
    assert_eq!(
        bench.outcome(&arrival).await,
        Outcome::Broken(BreakKind::Idle)
    );
}

#[tokio::test]
async fn a_backend_that_keeps_writing_is_never_idle() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        for _ in 0..10 {
            serving.send(chunk("data: 1\n\n")).await;
            tokio::time::sleep(SHORT / 2).await;
        }
        serving.send(LAST_CHUNK).await;
    })
    .await;
    // Pieces come at a distance well below the limit, all of them in a multiple of it.
    let (mut client, arrival) = begin(&mut bench, &backend, |spec| spec.idle = SHORT * 4).await;
    assert!(all(&mut client).await.1);
    assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
}

#[tokio::test]
async fn a_stream_is_bounded_in_all_also_where_the_backend_never_pauses() {
    let mut bench = Bench::new();
    for pauses in [true, false] {
        let backend = Backend::new(move |mut serving| async move {
            serving.request().await;
            serving.send(SSE_HEAD).await;
            let event = chunk(&format!("data: {}\n\n", "x".repeat(1000)));
            while serving.stream.write_all(event.as_bytes()).await.is_ok() {
                if pauses {
                    tokio::time::sleep(SHORT / 10).await;
                }
            }
            serving.closed().await;
        })
        .await;
        let (mut client, arrival) =
            begin(&mut bench, &backend, |spec| spec.total = Some(SHORT * 2)).await;
        let (data, is_whole) = all(&mut client).await;
        assert!(data.ends_with("\n\ndata: {\"error\":\"overtime\"}\n\n"));
        assert!(!is_whole);
        promptly("the close", backend.closed()).await;
        assert_eq!(
            bench.outcome(&arrival).await,
            Outcome::Broken(BreakKind::Overtime)
        );
    }
}

#[tokio::test]
async fn a_stream_ends_by_command_also_where_the_client_takes_nothing() {
    let mut bench = Bench::new();
    let backend = saying("data: 1\n\n", false).await;
    let (mut client, arrival) = begin(&mut bench, &backend, |_| {}).await;
    client.until(b"data: 1\n\n").await;
    assert!(arrival.mailbox.post(Command::Abort));
    let rest = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(rest.contains("data: {\"error\":\"aborted\"}\n\n") && !rest.ends_with(LAST_CHUNK));
    promptly("the close", backend.closed()).await;
    assert_eq!(
        bench.outcome(&arrival).await,
        Outcome::Broken(BreakKind::Aborted)
    );

    for by_total in [false, true] {
        let endless = Backend::new(|mut serving| async move {
            serving.request().await;
            serving.send(SSE_HEAD).await;
            let event = chunk(&format!("data: {}\n\n", "x".repeat(10_000)));
            while serving.stream.write_all(event.as_bytes()).await.is_ok() {}
            serving.closed().await;
        })
        .await;
        let total = by_total.then_some(SHORT * 5);
        let (client, arrival) = begin(&mut bench, &endless, |spec| spec.total = total).await;
        if !by_total {
            // Long enough for every buffer on the way to be full.
            tokio::time::sleep(SHORT * 5).await;
            arrival.mailbox.post(Command::Abort);
        }
        crate::bench::soon("the close", endless.closed()).await;
        let kind = if by_total {
            BreakKind::Overtime
        } else {
            BreakKind::Aborted
        };
        assert_eq!(bench.outcome(&arrival).await, Outcome::Broken(kind));
        drop(client);
    }
}

#[tokio::test]
async fn a_stalled_client_is_not_taken_for_a_silent_backend() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        let event = chunk(&format!("data: {}\n\n", "x".repeat(10_000)));
        for _ in 0..2000 {
            serving.send(&event).await;
        }
        serving.send(LAST_CHUNK).await;
    })
    .await;
    let (mut client, arrival) = begin(&mut bench, &backend, |spec| spec.idle = SHORT * 10).await;
    tokio::time::sleep(SHORT * 15).await;
    let mut read = 0;
    while !client.buf.ends_with(LAST_CHUNK.as_bytes()) {
        // The tail is kept, in case the last chunk comes in two pieces.
        client
            .buf
            .drain(..client.buf.len().saturating_sub(LAST_CHUNK.len()));
        read += client.more().await.unwrap();
    }
    assert!(read > 2000 * 10_008);
    assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
}

#[tokio::test]
async fn without_its_end_mark_a_stream_that_needs_one_is_broken() {
    let mut bench = Bench::new();
    for (says, is_whole) in [
        (
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            true,
        ),
        (
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            true,
        ),
        (
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n",
            false,
        ),
        ("data: 1\n\n", false),
    ] {
        let backend = Backend::answering(format!("{SSE_HEAD}{}{LAST_CHUNK}", chunk(says))).await;
        let (mut client, arrival) = begin(&mut bench, &backend, |spec| {
            spec.needs_end_mark = true;
            spec.meter = false;
        })
        .await;
        let (data, ends_whole) = all(&mut client).await;
        assert_eq!((ends_whole, data == says), (is_whole, is_whole), "{says:?}");
        let expected = if is_whole {
            Outcome::Answered
        } else {
            Outcome::Broken(BreakKind::Lost)
        };
        assert_eq!(bench.outcome(&arrival).await, expected);
    }
}

#[tokio::test]
async fn a_stream_that_ends_before_it_began_leaves_room_for_another_attempt() {
    for needs_end_mark in [true, false] {
        let mut bench = Bench::new();
        let backend = Backend::answering(format!("{SSE_HEAD}{LAST_CHUNK}")).await;
        let (_client, arrival) = begin(&mut bench, &backend, |spec| {
            spec.needs_end_mark = needs_end_mark;
        })
        .await;
        assert_eq!(bench.failed(&arrival).await.kind.name(), "truncated");
    }
}

#[tokio::test]
async fn a_backend_that_dies_after_the_end_mark_has_said_it_all() {
    let mut bench = Bench::new();
    let backend = saying("data: 1\n\ndata: [DONE]\n\n", true).await;
    let (mut client, arrival) = begin(&mut bench, &backend, |_| {}).await;
    let (data, is_whole) = all(&mut client).await;
    assert_eq!(
        (data.as_str(), is_whole),
        ("data: 1\n\ndata: [DONE]\n\n", true)
    );
    assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
}

#[tokio::test]
async fn where_only_the_close_tells_the_end_the_end_mark_must_have_come() {
    for (data, is_whole) in [
        ("data: 1\n\n", false),
        ("data: 1\n\ndata: [DONE]\n\n", true),
    ] {
        let backend = Backend::new(move |mut serving| async move {
            serving.request().await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            serving.send(format!("{head}{data}")).await;
        })
        .await;
        let mut bench = Bench::new();
        let (mut client, arrival) = begin(&mut bench, &backend, |_| {}).await;
        let (seen, ended) = all(&mut client).await;
        assert!(seen.starts_with(data), "{seen:?}");
        assert_eq!(ended, is_whole, "{data:?}");
        let outcome = match is_whole {
            true => Outcome::Answered,
            false => Outcome::Broken(BreakKind::Lost),
        };
        assert_eq!(bench.outcome(&arrival).await, outcome);
    }
}
