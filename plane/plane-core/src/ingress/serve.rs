//! One connection from its first byte to its last: request after request, each answered in turn.

use super::{
    door::Door,
    io::ServerIo,
    read::{self, Next},
    seats::Seat,
    watch::Watch,
};
use crate::{
    bodies::Held,
    digest::{Digest, DigestError, digest},
    exchange::{self, Arrival, Ending, Mailbox, Problem},
    http1::{Framing, GuardLimits, RequestHead},
    peers::{Conn, Inbound},
    plane::Context,
};
use bytes::{Bytes, BytesMut};
use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Who is at the other end.
#[derive(Clone)]
pub struct Who {
    pub client: Arc<str>,
    pub peer: Option<Arc<str>>,
    pub link: Option<Arc<Conn>>,
}

impl Who {
    pub fn client(address: String) -> Who {
        Who {
            client: address.into(),
            peer: None,
            link: None,
        }
    }

    pub fn peer(stream: &Inbound) -> Who {
        let conn = stream.conn.clone();
        Who {
            client: conn.remote.to_string().into(),
            peer: Some(conn.peer.to_base58().into()),
            link: Some(conn),
        }
    }
}

/// What is read and thrown away after an answer that came before the request's end, so that the
/// client reads the answer instead of a reset: in all, and until it is silent for so long.
const DRAINED_BYTES_MAX: usize = 256 * 1024 * 1024;
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// A body up to this is looked at on the plane's own thread; a longer one would hold up the others.
const DIGEST_HERE_BYTES_MAX: usize = 256 * 1024;

pub async fn serve<IO: ServerIo>(
    io: IO,
    context: Arc<Context>,
    door: Arc<Door>,
    who: Who,
    seat: Option<Arc<Seat>>,
) {
    let watch = Watch::new(&who);
    let mut served = Served {
        io,
        buf: BytesMut::new(),
        watch,
        context,
        door,
        who,
        seat,
    };
    let limits = match served.who.link {
        Some(_) => GuardLimits::LINK,
        None => GuardLimits::default(),
    };
    let mut is_fresh = true;
    loop {
        let Served {
            io,
            buf,
            watch,
            door,
            ..
        } = &mut served;
        let next = read::next_head(io, buf, door, is_fresh, limits, watch).await;
        is_fresh = false;
        let after = match next {
            Next::Request(head) => served.answer(*head).await,
            // Nothing is under way: an end in good order, also for a peer, to whom a drop is a reset.
            Next::Closed => return served.close(false).await,
            Next::Refused(refused) => served.refuse(refused).await,
        };
        if let Some(seat) = &served.seat {
            seat.idles();
        }
        match after {
            After::KeepAlive => {}
            After::Close => return served.close(false).await,
            After::DrainAndClose => return served.close(true).await,
            After::Cut => return served.io.cut(),
            // Dropping resets a substream and closes a socket.
            After::Drop => return,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
    /// The client may still be sending.
    DrainAndClose,
    /// Even the end of the connection must not look like the proper end of the answer.
    Cut,
    Drop,
}

pub(super) struct Served<IO> {
    pub io: IO,
    /// What has been read and belongs to no request yet.
    pub buf: BytesMut,
    pub watch: Watch,
    pub context: Arc<Context>,
    pub door: Arc<Door>,
    pub who: Who,
    /// None for a peer's stream.
    pub seat: Option<Arc<Seat>>,
}

impl<IO: ServerIo> Served<IO> {
    async fn answer(&mut self, head: RequestHead) -> After {
        let arrived_at = Instant::now();
        let context = self.context.clone();
        let _live = context.begin();
        let has_body = head.framing != Framing::Length(0);
        if has_body && !self.seat.as_ref().is_none_or(|seat| seat.receives()) {
            return After::Drop;
        }
        let is_stranger = self
            .who
            .link
            .as_ref()
            .is_some_and(|conn| conn.is_stranger());
        let (room, bytes_max) = self.door.room(is_stranger);
        let mut held = Held::nothing(room);
        let Served {
            io,
            buf,
            watch,
            door,
            who,
            ..
        } = self;
        let is_heard = !has_body || door.hears(who.peer.as_deref());
        let body = match is_heard {
            true => read::body(io, buf, &head, door, (&mut held, bytes_max), watch).await,
            // A stranger could fill the memory with what it will be refused anyway.
            false => Some(Err(Problem::Unasked)),
        };
        let Some(body) = body else {
            return After::Drop;
        };
        if !self.seat.as_ref().is_none_or(|seat| seat.runs()) {
            return After::Drop;
        }
        let arrival = Arc::new(self.arrival(head, body, held, arrived_at).await);
        let standing = self.door.standing_for(&arrival.head.path);
        let mut ending = Ending::new(self.context.events.clone(), arrival.clone());
        let reply = {
            let Served { io, buf, watch, .. } = self;
            // What nobody works for is told at once, also to a client that has sent all it wants to and
            // closed its side: its going is no news.
            let watches = watch.is_peer() || is_work(&arrival);
            let told = exchange::begin(&context, &arrival, standing.as_deref(), &mut ending);
            let run = exchange::run(told, standing.as_deref(), &mut ending);
            // Who has left is looked for first: a command that comes now would ask a backend for nobody.
            tokio::select! {
                biased;
                () = poll_fn(|cx| watch.poll_gone(io, buf, cx)), if watches => None,
                reply = run => reply,
            }
        };
        match reply {
            Some(reply) => self.send(&arrival, reply, ending).await,
            None => After::Drop,
        }
    }

    async fn arrival(
        &mut self,
        head: RequestHead,
        body: Result<Bytes, Problem>,
        held: Held,
        arrived_at: Instant,
    ) -> Arrival {
        let (body, problem) = match body {
            Ok(body) => (body, None),
            Err(problem) => (Bytes::new(), Some(problem)),
        };
        let wants_digest =
            self.door.spec.digests_bodies && problem.is_none() && &head.method[..] == b"POST";
        let digest = if wants_digest {
            Some(digest_of(&body).await)
        } else {
            None
        };
        Arrival {
            handle: self.context.next_handle(),
            listener: self.door.spec.name.clone(),
            digest,
            client: self.who.client.clone(),
            peer: self.who.peer.clone(),
            is_from_own_kind: self
                .who
                .link
                .as_ref()
                .is_some_and(|link| link.is_own_kind()),
            request_id: exchange::request_id(head.fields.get("x-request-id")),
            request_id_names: self.door.request_id_names(&head.path),
            standing_fields: self.door.spec.standing_fields.clone(),
            is_standing: problem.is_none() && self.door.standing_for(&head.path).is_some(),
            head,
            body,
            problem,
            held,
            arrived_at,
            mailbox: Mailbox::new(self.context.wakeups.clone()),
        }
    }

    async fn close(&mut self, drains: bool) {
        let ending = tokio::io::AsyncWriteExt::shutdown(&mut self.io);
        let ended = timeout(self.door.spec.write_within, ending).await;
        // Closing over unread bytes would be a reset, and that could overtake the answer.
        let drains = drains || !self.buf.is_empty();
        if !matches!(ended, Ok(Ok(()))) || !drains || self.watch.has_fin() {
            return;
        }
        let draining = async {
            let mut left = DRAINED_BYTES_MAX;
            while left > 0 {
                self.buf.clear();
                let reading = read::fill(&mut self.io, &mut self.buf);
                match timeout(DRAIN_SILENCE, reading).await {
                    Ok(Ok(n)) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(DRAIN_WITHIN, draining).await;
    }
}

/// Whether a backend may work on it for a while: something with a body that is well-formed.
fn is_work(arrival: &Arrival) -> bool {
    let is_read = !matches!(arrival.digest, Some(Err(_)));
    arrival.problem.is_none() && is_read && !arrival.body.is_empty()
}

async fn digest_of(body: &Bytes) -> Result<Digest, DigestError> {
    if body.len() <= DIGEST_HERE_BYTES_MAX {
        return digest(body);
    }
    let elsewhere = body.clone();
    match tokio::task::spawn_blocking(move || digest(&elsewhere)).await {
        Ok(digest) => digest,
        // The thread did not get to it; here it costs the others some time, and no more.
        Err(_) => digest(body),
    }
}
