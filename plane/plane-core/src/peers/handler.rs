//! The `/http/1.1` streams of one connection: opened on request, accepted with back-pressure.
//!
//! Any number of requests may be under way at once. An inbound stream is never lost for want of room: it
//! waits in its own upgrade for a permit and a place in the queue, and by waiting fills one of the
//! connection's negotiating places, so that the peer's next streams wait in the muxer. What is served over
//! the streams, and by how many tasks, is left to the receiver of the queue.

use std::{
    convert::Infallible, future::Future, iter, pin::Pin, sync::Arc, task::Context, task::Poll,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use libp2p::{
    Stream, StreamProtocol,
    core::upgrade::{InboundUpgrade, ReadyUpgrade, UpgradeInfo},
    swarm::{
        ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedOutbound},
    },
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    conn::{Conn, OpenError, OpenRequest},
    stream::{Inbound, LinkStream},
};

/// The one stream protocol, for every HTTP exchange in both directions.
pub const HTTP: StreamProtocol = StreamProtocol::new("/http/1.1");
/// An inbound stream negotiates and waits for its place within this time, or it is reset.
const ACCEPT_WITHIN: Duration = Duration::from_secs(60);
/// Inbound streams of a stranger that are handed out at once.
const STRANGER_SERVED_MAX: usize = 2;

struct Gate {
    conn: Arc<Conn>,
    permits: Arc<Semaphore>,
    queue: mpsc::Sender<Inbound>,
}

/// The inbound upgrade: waits for a permit and for room in the queue.
#[derive(Clone)]
pub struct Accept(Arc<Gate>);

impl UpgradeInfo for Accept {
    type Info = StreamProtocol;
    type InfoIter = iter::Once<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        iter::once(HTTP)
    }
}

impl InboundUpgrade<Stream> for Accept {
    type Output = ();
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    fn upgrade_inbound(self, stream: Stream, _: StreamProtocol) -> Self::Future {
        async move {
            let gate = self.0;
            let waiting = gate.conn.wait();
            // Both fail only when nobody serves any more; then dropping the stream resets it.
            if let Ok(permit) = gate.permits.clone().acquire_owned().await {
                drop(waiting);
                let inbound = Inbound::new(gate.conn.clone(), stream, permit);
                let _ = gate.queue.send(inbound).await;
            }
            Ok(())
        }
        .boxed()
    }
}

/// Lives as long as its connection; its end is what cancels `Conn::closed`.
pub struct Handler {
    conn: Arc<Conn>,
    accept: Accept,
    requests: mpsc::UnboundedReceiver<OpenRequest>,
    open_within: Duration,
    /// Until a stranger is welcome: what it lacks of the places of others.
    lacks: Option<(Pin<Box<WaitForCancellationFutureOwned>>, usize)>,
}

impl Handler {
    pub(super) fn new(
        (conn, requests): (Arc<Conn>, mpsc::UnboundedReceiver<OpenRequest>),
        served_max: usize,
        queue: mpsc::Sender<Inbound>,
        open_within: Duration,
    ) -> Self {
        let lacks = conn.is_stranger().then(|| {
            let lacking = served_max.saturating_sub(STRANGER_SERVED_MAX);
            (Box::pin(conn.trust.welcomed()), lacking)
        });
        let lacking = lacks.as_ref().map_or(0, |(_, lacking)| *lacking);
        let permits = Arc::new(Semaphore::new(served_max - lacking));
        let gate = Gate {
            conn: conn.clone(),
            permits,
            queue,
        };
        Self {
            conn,
            accept: Accept(Arc::new(gate)),
            requests,
            open_within,
            lacks,
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.conn.closed.cancel();
    }
}

type Request = ConnectionHandlerEvent<ReadyUpgrade<StreamProtocol>, OpenRequest, Infallible>;

impl ConnectionHandler for Handler {
    type FromBehaviour = Infallible;
    type ToBehaviour = Infallible;
    type InboundProtocol = Accept;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = OpenRequest;

    fn listen_protocol(&self) -> SubstreamProtocol<Accept> {
        SubstreamProtocol::new(self.accept.clone(), ()).with_timeout(ACCEPT_WITHIN)
    }

    // A link is meant to idle; ping ends dead ones.
    fn connection_keep_alive(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Request> {
        if let Some((welcomed, lacking)) = &mut self.lacks
            && welcomed.as_mut().poll(cx).is_ready()
        {
            self.accept.0.permits.add_permits(*lacking);
            self.lacks = None;
        }
        while let Poll::Ready(Some(request)) = self.requests.poll_recv(cx) {
            if request.reply.is_closed() {
                continue;
            }
            let protocol = SubstreamProtocol::new(ReadyUpgrade::new(HTTP), request)
                .with_timeout(self.open_within);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        Poll::Pending
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<Option<Infallible>> {
        self.conn.closed.cancel();
        Poll::Ready(None)
    }

    fn on_behaviour_event(&mut self, event: Infallible) {
        match event {}
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<Accept, Self::OutboundProtocol, (), OpenRequest>,
    ) {
        // A requester that has left drops the answer, which resets the stream and frees the slot.
        match event {
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol,
                info,
            }) => {
                let OpenRequest { slot, reply } = info;
                let _ = reply.send(Ok(LinkStream::new(protocol, slot)));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let _ = info.reply.send(Err(why(error)));
            }
            _ => {}
        }
    }
}

fn why(error: StreamUpgradeError<Infallible>) -> OpenError {
    match error {
        StreamUpgradeError::Timeout => OpenError::Timeout,
        StreamUpgradeError::NegotiationFailed => OpenError::Unsupported,
        StreamUpgradeError::Io(error) => OpenError::Io(error),
        StreamUpgradeError::Apply(never) => match never {},
    }
}
