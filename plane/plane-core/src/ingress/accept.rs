//! Takes connections in: TCP ones from clients, substreams from peers.

use super::{
    door::Door,
    serve::{Who, serve},
};
use crate::{events::Event, peers::Inbound, plane::Context};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Pause after a failed accept: what is missing (file descriptors, memory) comes back by itself.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the system holds of an answer beyond what the client has room for.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 64 << 10;

struct Counted(Arc<Door>);

impl Counted {
    fn new(door: &Arc<Door>) -> Option<Counted> {
        let before = door.connections.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(door.clone());
        (before < door.spec.connections_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts until the door closes.
pub async fn accept_tcp(context: Arc<Context>, door: Arc<Door>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => admit(
                &context,
                &door,
                stream,
                address.ip().to_canonical().to_string(),
            ),
            // The client gave up between its greeting and our answer: nothing of ours is amiss.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tell_failure(&context, &door, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(context: &Arc<Context>, door: &Arc<Door>, stream: TcpStream, client: String) {
    let Some(counted) = Counted::new(door) else {
        reject(context, door, client, "too_many_connections");
        return;
    };
    if set_up(&stream).is_err() {
        return; // It is closed already.
    }
    let (context, door) = (context.clone(), door.clone());
    tokio::spawn(async move {
        serve(stream, context, door, Who::client(client)).await;
        drop(counted);
    });
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
        tokio::spawn(serve(stream, context, door, who));
    }
}

fn reject(context: &Context, door: &Door, client: String, reason: &'static str) {
    context.events.push(Event::Rejected {
        listener: door.spec.name.clone(),
        client,
        status: 0,
        reason,
    });
}

fn tell_failure(context: &Context, door: &Door, error: &io::Error) {
    // EMFILE and ENFILE: worth a word of their own.
    let reason = match error.raw_os_error() {
        Some(23 | 24) => "out_of_file_descriptors",
        _ => "accept_failed",
    };
    reject(context, door, String::new(), reason);
}
