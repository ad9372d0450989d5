//! Limits in bytes and time on what clients send and take.

use crate::{
    backend::{Backend, SSE_HEAD, chunk, sized},
    bench::{Bench, forward, respond, soon},
    client::{Client, get, post},
};
use plane_core::{
    events::Event,
    exchange::{Outcome, Problem},
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT: Duration = Duration::from_millis(100);

/// A backend whose stream goes on as fast as it is taken.
async fn endless() -> Backend {
    Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        let event = chunk(&format!("data: {}\n\n", "x".repeat(10_000)));
        while serving.stream.write_all(event.as_bytes()).await.is_ok() {}
        serving.closed().await;
    })
    .await
}

#[tokio::test]
async fn a_413_reaches_a_client_that_is_still_sending() {
    let mut bench = Bench::with(|door| door.body_bytes_max = 1000);
    let heads = ["Content-Length: 52428800", "Transfer-Encoding: chunked"];
    for framing in heads {
        let client = bench.client().await;
        let (mut read, mut write) = client.stream.into_split();
        let sending = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
            write.write_all(head.as_bytes()).await.unwrap();
            let piece = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
            for _ in 0..50 {
                // It never looks whether an answer has come.
                write
                    .write_all(piece.as_bytes())
                    .await
                    .expect("never reset");
            }
            write
        });
        let arrival = bench.arrived().await;
        assert_eq!(
            (arrival.problem, arrival.body.len()),
            (Some(Problem::TooLarge), 0)
        );
        arrival.mailbox.post(respond(413, "too large"));
        soon("50 MB", sending).await.unwrap();
        let mut answer = Vec::new();
        soon(
            "the answer",
            tokio::io::AsyncReadExt::read_to_end(&mut read, &mut answer),
        )
        .await
        .unwrap();
        assert!(
            answer.starts_with(b"HTTP/1.1 413 ") && answer.ends_with(b"too large"),
            "{framing}"
        );
        assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
    }
}

#[tokio::test]
async fn a_413_reaches_a_client_that_has_sent_all_and_closed_its_side() {
    let mut bench = Bench::with(|door| door.body_bytes_max = 5);
    for framing in [
        "Content-Length: 8\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n8\r\n",
    ] {
        let mut client = bench.client().await;
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}12345678");
        client.send(request).await;
        client.stream.shutdown().await.unwrap();
        let arrival = bench.arrived().await;
        assert_eq!(arrival.problem, Some(Problem::TooLarge));
        // A decider under load takes its time, and the end of input is there long before it.
        tokio::time::sleep(SHORT).await;
        arrival.mailbox.post(respond(413, "too large"));
        assert_eq!(client.answer().await.status, 413, "{framing}");
        assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
    }
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_taken() {
    let mut bench = Bench::with(|door| door.body_bytes_max = 5);
    let mut client = bench.client().await;
    client.send(post("12345")).await;
    let chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n2\r\n45\r\n0\r\n\r\n";
    client.send(chunked).await;
    for _ in 0..2 {
        let arrival = bench.arrived().await;
        assert_eq!((arrival.problem, &arrival.body[..]), (None, &b"12345"[..]));
        arrival.mailbox.post(respond(200, ""));
        assert_eq!(client.answer().await.status, 200);
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn a_body_that_stops_short_is_told_and_its_sender_answered() {
    let mut bench = Bench::new();
    for wire in [
        "Content-Length: 10\r\n\r\n12345",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n123",
    ] {
        let mut client = bench.client().await;
        client
            .send(format!("POST / HTTP/1.1\r\nHost: h\r\n{wire}"))
            .await;
        client.stream.shutdown().await.unwrap();
        let arrival = bench.arrived().await;
        assert_eq!(arrival.problem, Some(Problem::Incomplete));
        arrival.mailbox.post(respond(400, "short"));
        assert_eq!(client.answer().await.text(), "short");
        assert_eq!(client.rest().await.unwrap(), b"");
        assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_end() {
    let mut bench = Bench::with(|door| {
        door.head_within = SHORT;
        door.body_within = SHORT;
    });
    let mut silent = bench.client().await;
    assert_eq!(
        silent.rest().await.unwrap(),
        b"",
        "who never says a word is not answered"
    );
    let mut slow = bench.client().await;
    slow.send("GET / HTTP/1.1\r\n").await;
    assert_eq!(slow.answer().await.status, 408);
    assert_eq!(bench.rejected().await, (408, "head_timeout"));
    assert_eq!(slow.rest().await.unwrap(), b"");
    let mut slow = bench.client().await;
    slow.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12")
        .await;
    let arrival = bench.arrived().await;
    assert_eq!(arrival.problem, Some(Problem::Slow));
    arrival.mailbox.post(respond(408, "slow"));
    assert_eq!(slow.answer().await.text(), "slow");
    assert_eq!(slow.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time() {
    let mut bench = Bench::with(|door| door.idle_within = Some(SHORT));
    let mut client = bench.client().await;
    client.send(get("/")).await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    client.answer().await;
    assert_eq!(client.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let mut bench = Bench::with(|door| door.write_within = SHORT);
    let endless = endless().await;
    let mut streams = bench.client().await;
    streams.send(post("{}")).await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(endless.address)));
    soon("the end of the stream", endless.closed()).await;
    assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);

    let mut whole = bench.client().await;
    whole.send(get("/")).await;
    let arrival = bench.arrived().await;
    arrival.mailbox.post(respond(200, &"x".repeat(64 << 20)));
    assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);
}

#[tokio::test]
async fn a_slow_client_that_takes_something_has_it_all() {
    let mut bench = Bench::with(|door| door.write_within = Duration::from_secs(1));
    let mut client = bench.client().await;
    client.send(get("/")).await;
    let arrival = bench.arrived().await;
    arrival.mailbox.post(respond(200, &"x".repeat(24 << 20)));
    let mut read = 0;
    // In all far longer than a write may stand still.
    while read < 24 << 20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..16 {
            client.buf.clear();
            let got = client.more().await.unwrap();
            read += got;
            if got == 0 || read >= 24 << 20 {
                break;
            }
        }
    }
    assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
}

// What the system holds for such a client moves in large steps, and must not take longer than a write may.
#[tokio::test]
async fn a_client_that_reads_a_stream_slowly_and_without_a_pause_is_not_given_up() {
    let mut bench = Bench::with(|door| door.write_within = Duration::from_secs(3));
    let endless = endless().await;
    let mut client = bench.client().await;
    client.send(post("{}")).await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(endless.address)));
    let mut little = [0; 4096];
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        client.stream.read_exact(&mut little).await.unwrap();
    }
    // What it has not read yet would hide from it that nothing comes any more.
    let given_up = tokio::time::timeout(Duration::ZERO, endless.closed()).await;
    assert!(given_up.is_err(), "it was given up");
    drop(client);
    assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_turned_away_with_a_word_and_told() {
    let mut bench = Bench::with(|door| {
        door.connections_max = 1;
        door.refusals = vec![(503, "full".into())].into();
    });
    let mut first = bench.client().await;
    first.send(get("/")).await;
    let arrival = bench.arrived().await;
    let mut second = bench.client().await;
    assert_eq!(bench.rejected().await, (503, "too_many_connections"));
    let refusal = second.answer().await;
    assert_eq!((refusal.status, refusal.text()), (503, "full"));
    assert_eq!(refusal.field("connection"), ["close"]);
    assert!(matches!(second.more().await, Ok(0) | Err(_)));
    arrival.mailbox.post(respond(200, "ok"));
    assert_eq!(first.answer().await.text(), "ok");
    drop(first);
    bench.outcome(&arrival).await;
    soon("room again", async {
        loop {
            let mut third = bench.client().await;
            third.send(get("/")).await;
            if let Event::Arrived(_) = bench.told().await {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let mut bench = Bench::with(|door| door.bodies_bytes_max = 1000);
    let mut first = bench.client().await;
    first.send(post(&"x".repeat(800))).await;
    let held = bench.arrived().await;
    assert_eq!(bench.plane.bodies_bytes(), 800);
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n{}\r\n",
        "x".repeat(300)
    );
    for wire in [post(&"x".repeat(300)), chunked] {
        let mut client = bench.client().await;
        client.send(wire).await;
        let arrival = bench.arrived().await;
        assert_eq!(arrival.problem, Some(Problem::Overloaded));
        arrival.mailbox.post(respond(503, "overloaded"));
        assert_eq!(client.answer().await.text(), "overloaded");
        bench.outcome(&arrival).await;
    }
    let mut small = bench.client().await;
    small.send(post(&"x".repeat(200))).await;
    let arrival = bench.arrived().await;
    assert_eq!(arrival.problem, None);
    held.mailbox.post(respond(200, "ok"));
    first.answer().await;
    bench.outcome(&held).await;
    drop(held);
    soon("the bytes given back", async {
        while bench.plane.bodies_bytes() > 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Asks for a body of so many bytes and reads none of it; whether the reply was told to have begun.
async fn is_told_to_begin(bench: &mut Bench, bytes: usize) -> bool {
    let backend = Backend::new(move |mut serving| async move {
        serving.request().await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        serving.send(format!("{head}{}", "x".repeat(bytes))).await;
    })
    .await;
    let target = bench.server(backend.address);
    // The client stays for as long as it is held.
    let (_client, _) = bench.forwarded(&target).await;
    loop {
        match bench.event().await {
            Event::Started { .. } => return true,
            Event::Finished(_) => return false,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_long_answer_is_told_when_it_goes_out_and_a_short_one_only_at_its_end() {
    let mut bench = Bench::new();
    assert!(!is_told_to_begin(&mut bench, 100).await);
    // Too long for the sockets between: its end is not in sight while nobody reads.
    assert!(is_told_to_begin(&mut bench, 1 << 20).await);
}

#[tokio::test]
async fn the_bodies_of_one_listener_take_no_room_from_another() {
    let mut bench = Bench::with(|door| door.bodies_bytes_max = 1000);
    let other = plane_core::ingress::DoorSpec::named("other");
    let any = "127.0.0.1:0".parse().unwrap();
    let address = bench.plane.listen_http(any, other).unwrap();
    let mut full = bench.client().await;
    full.send(post(&"x".repeat(900))).await;
    let held = bench.arrived().await;
    let mut client = Client::connect(address).await;
    client.send(post(&"x".repeat(900))).await;
    let arrival = bench.arrived().await;
    assert_eq!((held.problem, arrival.problem), (None, None));
}

/// A backend that answers with so many bytes of a body that is held.
async fn long_answers(bytes: usize) -> Backend {
    let body = "x".repeat(bytes);
    Backend::answering(sized(&body)).await
}

#[tokio::test]
async fn answers_that_slow_readers_hold_up_are_bounded_in_all_and_the_next_is_passed_on_as_it_comes()
 {
    let mut bench = Bench::holding_answers(8 << 20);
    let backend = long_answers(6 << 20).await;
    let target = bench.server(backend.address);
    // Nobody reads: each holds what it is given.
    let mut slow = Vec::new();
    for _ in 0..6 {
        slow.push(bench.forwarded(&target).await);
        while !matches!(bench.event().await, Event::Started { .. }) {}
    }
    let held = bench.plane.answers_bytes();
    assert!(held > 1 << 20, "{held}");
    assert!(held <= 8 << 20, "{held}");
    // Whoever reads is served all the same, a short answer and a long one.
    for bytes in [20_000, 6 << 20] {
        let backend = long_answers(bytes).await;
        let target = bench.server(backend.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        assert_eq!(client.answer().await.body.len(), bytes);
        bench.outcome(&arrival).await;
    }
    for (client, _) in &mut slow {
        assert_eq!(client.answer().await.body.len(), 6 << 20);
    }
    drop(slow);
    soon("the bytes given back", async {
        while bench.plane.answers_bytes() > 0 {
            bench.plane.context().events.drain();
            bench.waiting.clear();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn idle_connections_make_room_and_a_running_request_does_not() {
    let mut bench = Bench::with(|door| door.connections_max = 2);
    let mut busy = bench.client().await;
    busy.send(get("/")).await;
    let arrival = bench.arrived().await;
    let mut silent = bench.client().await;
    let mut newcomer = bench.client().await;
    newcomer.send(get("/")).await;
    let second = bench.arrived().await;
    assert!(matches!(silent.more().await, Ok(0) | Err(_)));
    for (client, arrival) in [(&mut busy, arrival), (&mut newcomer, second)] {
        arrival.mailbox.post(respond(200, "ok"));
        assert_eq!(client.answer().await.text(), "ok");
    }
}

#[tokio::test]
async fn half_a_request_makes_room_where_nobody_idles() {
    let mut bench = Bench::with(|door| door.connections_max = 2);
    let mut half = bench.client().await;
    half.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhal")
        .await;
    let mut busy = bench.client().await;
    busy.send(get("/")).await;
    let arrival = bench.arrived().await;
    let mut newcomer = bench.client().await;
    newcomer.send(get("/")).await;
    let second = bench.arrived().await;
    assert!(matches!(half.more().await, Ok(0) | Err(_)));
    for (client, arrival) in [(&mut busy, arrival), (&mut newcomer, second)] {
        arrival.mailbox.post(respond(200, "ok"));
        assert_eq!(client.answer().await.text(), "ok");
    }
}
