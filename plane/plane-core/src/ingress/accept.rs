//! Takes connections in: TCP ones from clients, substreams from peers.

use super::{
    door::Door,
    reply::refusal,
    serve::{Who, serve},
};
use crate::{events::Event, peers::Inbound, plane::Context, seldom::Seldom};
use std::{
    future::{Future, poll_fn},
    io::{self, Read, Write},
    net::{IpAddr, Shutdown},
    pin::pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Pause after a failed accept: what is missing (file descriptors, memory) comes back by itself.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The status for whoever finds no room.
const TURNED_AWAY: u16 = 503;
/// What is taken off a connection that finds no room.
const UNREAD_BYTES: usize = 8 * 1024;

/// What the system holds of an answer beyond what the client has room for.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 64 << 10;

/// Accepts until the door closes.
pub async fn accept_tcp(context: Arc<Context>, door: Arc<Door>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => admit(&context, &door, stream, address.ip().to_canonical()),
            // The client gave up between its greeting and our answer: nothing of ours is amiss.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tell_failure(&context, &door, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(context: &Arc<Context>, door: &Arc<Door>, stream: TcpStream, address: IpAddr) {
    let client = address.to_string();
    let sitting = match door.seats.take(address) {
        Ok(sitting) => sitting,
        Err(reason) => {
            reject(context, door, client, TURNED_AWAY, reason);
            turn_away(stream, door);
            return;
        }
    };
    if set_up(&stream).is_err() {
        return; // It is closed already.
    }
    let (context, door) = (context.clone(), door.clone());
    tokio::spawn(async move {
        let who = Who::client(client);
        let seat = Some(sitting.seat.clone());
        let mut serving = pin!(serve(stream, context, door, who, seat));
        let mut called_off = pin!(sitting.seat.called_off());
        let mut news = Seldom::default();
        poll_fn(|cx| {
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !news.is_due(cx) {
                return Poll::Pending;
            }
            let waker = news.waker();
            called_off
                .as_mut()
                .poll(&mut task::Context::from_waker(&waker))
        })
        .await;
    });
}

/// A word for whoever finds no room, as far as it costs nothing: what the system takes at once.
fn turn_away(stream: TcpStream, door: &Door) {
    let Ok(mut stream) = stream.into_std() else {
        return;
    };
    let (mut head, body) = refusal(&door.spec, TURNED_AWAY);
    head.extend_from_slice(&body);
    if stream.write(&head).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
        // Closing over a request that lies there would be a reset, which may overtake the word.
        let _ = stream.read(&mut [0; UNREAD_BYTES]);
    }
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    // Without it small writes wait for the other side's acknowledgement.
    stream.set_nodelay(true)?;
    // Else the system takes more only once a third of its buffer is free, which may be a megabyte: under a
    // client that reads slowly and without a pause nothing would move for a minute.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    Ok(())
}

/// Serves the substreams that peers open, until the link itself ends.
pub async fn accept_peers(
    context: Arc<Context>,
    door: Arc<Door>,
    mut inbound: mpsc::Receiver<Inbound>,
) {
    while let Some(stream) = inbound.recv().await {
        let (context, door) = (context.clone(), door.clone());
        let who = Who::peer(&stream);
        tokio::spawn(serve(stream, context, door, who, None));
    }
}

fn reject(context: &Context, door: &Door, client: String, status: u16, reason: &'static str) {
    context.events.push(Event::Rejected {
        listener: door.spec.name.clone(),
        client,
        status,
        reason,
    });
}

fn tell_failure(context: &Context, door: &Door, error: &io::Error) {
    // EMFILE and ENFILE: worth a word of their own.
    let reason = match error.raw_os_error() {
        Some(23 | 24) => "out_of_file_descriptors",
        _ => "accept_failed",
    };
    reject(context, door, String::new(), 0, reason);
}
