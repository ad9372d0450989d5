//! One attempt: send the request, wait for the first byte of an answer worth passing on.

use super::{
    Failure, FailureKind, Forward, StreamBody, Told, Whole,
    stream::{StreamLimits, StreamStart},
};
use crate::{
    events::Event,
    http1::ResponseHead,
    meter,
    upstream::{Lane, UpBody},
};
use bytes::{Bytes, BytesMut};
use std::{sync::Arc, time::Instant};

pub(super) enum Success {
    /// The first bytes are there; the rest comes as the backend writes it.
    Stream(Box<StreamBody>, ResponseHead),
    Whole(Arc<Whole>),
}

/// How much of a refusing answer's body is kept for whoever judges it.
const FAILURE_BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn attempt(told: &Told<'_>, forward: &Forward) -> Result<Success, Box<Failure>> {
    let begun = Instant::now();
    let mut head_s = 0.0;
    let way = to_first_byte(told, forward, begun, &mut head_s);
    match tokio::time::timeout(forward.within, way).await {
        Ok(Ok(success)) => Ok(success),
        Ok(Err(mut failure)) => {
            failure.head_s = head_s;
            failure.is_link_down |= is_link_down(told, forward);
            Err(failure)
        }
        Err(_) => {
            let mut failure =
                Failure::new(FailureKind::Timeout, "no answer within the time allowed");
            failure.head_s = head_s;
            failure.is_link_down = is_link_down(told, forward);
            Err(failure)
        }
    }
}

fn is_link_down(told: &Told<'_>, forward: &Forward) -> bool {
    told.context.lanes.is_link_down(&forward.target)
}

async fn to_first_byte(
    told: &Told<'_>,
    forward: &Forward,
    begun: Instant,
    head_s: &mut f64,
) -> Result<Success, Box<Failure>> {
    let lane = told.context.lanes.lane(&forward.target)?;
    let (request_head, request_body) = forward.request(told.arrival);
    let (head, mut body) = lane.send(&request_head, &request_body).await?;
    *head_s = begun.elapsed().as_secs_f64();
    told.context
        .events
        .push_if(told.is_announced, || Event::Head {
            handle: told.arrival.handle,
            attempt: forward.attempt,
            status: head.status,
            seconds: *head_s,
            is_stream: head.is_event_stream(),
        });
    if head.status != 200 && !forward.spec.relay_any_status {
        return Err(refused(head, &mut body).await);
    }
    if head.is_event_stream() {
        return match body.next().await {
            Ok(Some(first)) => Ok(start_stream(
                told,
                forward,
                begun,
                vec![first],
                lane,
                body,
                head,
            )),
            Ok(None) => Ok(whole(forward, head, Bytes::new())),
            Err(broken) => Err(Failure::new(FailureKind::Truncated, broken.0)),
        };
    }
    collect(told, forward, begun, lane, head, body).await
}

/// Holds the answer until it is whole, or until it is too long to hold.
async fn collect(
    told: &Told<'_>,
    forward: &Forward,
    begun: Instant,
    lane: Lane,
    head: ResponseHead,
    mut body: UpBody,
) -> Result<Success, Box<Failure>> {
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut held = 0;
    loop {
        match body.next().await {
            Ok(Some(piece)) => {
                held += piece.len();
                pieces.push(piece);
                if held > forward.spec.buffered_bytes_max {
                    return Ok(start_stream(told, forward, begun, pieces, lane, body, head));
                }
            }
            Ok(None) => return Ok(whole(forward, head, join(pieces, held))),
            Err(broken) => return Err(Failure::new(FailureKind::Truncated, broken.0)),
        }
    }
}

fn start_stream(
    told: &Told<'_>,
    forward: &Forward,
    begun: Instant,
    first: Vec<Bytes>,
    lane: Lane,
    body: UpBody,
    head: ResponseHead,
) -> Success {
    let start = StreamStart {
        first,
        body,
        lane_closed: lane.closed(),
        is_event_stream: head.is_event_stream(),
    };
    let limits = StreamLimits {
        begun,
        idle: forward.spec.idle,
        total: forward.spec.total,
    };
    Success::Stream(
        Box::new(StreamBody::new(
            told.arrival.clone(),
            forward.spec.clone(),
            start,
            limits,
        )),
        head,
    )
}

fn whole(forward: &Forward, head: ResponseHead, body: Bytes) -> Success {
    let usage = if forward.spec.meter {
        meter::usage_of_body(&body)
    } else {
        None
    };
    Success::Whole(Arc::new(Whole { head, body, usage }))
}

async fn refused(head: ResponseHead, body: &mut UpBody) -> Box<Failure> {
    let mut kept = BytesMut::new();
    while kept.len() < FAILURE_BODY_BYTES_MAX {
        match body.next().await {
            Ok(Some(piece)) => kept
                .extend_from_slice(&piece[..piece.len().min(FAILURE_BODY_BYTES_MAX - kept.len())]),
            Ok(None) | Err(_) => break,
        }
    }
    let mut failure = Failure::new(FailureKind::Status, "");
    failure.status = head.status;
    failure.fields = head.fields;
    failure.body = kept.freeze();
    failure
}

fn join(mut pieces: Vec<Bytes>, len: usize) -> Bytes {
    if pieces.len() == 1 {
        return pieces.swap_remove(0);
    }
    let mut all = BytesMut::with_capacity(len);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}
