use super::*;
use crate::{
    bodies::{Bodies, Held},
    exchange::{Mailbox, Outcome},
    http1::{Fields, Framing, RequestHead},
};
use bytes::Bytes;
use std::time::Instant;

fn quiet() -> Event {
    Event::Started {
        handle: 1,
        attempt: 1,
        seconds: 0.0,
    }
}

fn loud() -> Event {
    Event::PeerDown {
        peer: "p".into(),
        reason: "r".into(),
    }
}

fn is_ringing(events: &Events) -> bool {
    let mut counter = [0u8; 8];
    rustix::io::read(events.bell_fd(), &mut counter).is_ok()
}

#[test]
fn a_loud_event_rings_once_until_drained() {
    let events = Events::new().unwrap();
    events.push(loud());
    events.push(loud());
    assert!(is_ringing(&events) && !is_ringing(&events));
    assert_eq!(events.drain().len(), 2);
    events.push(loud());
    assert!(is_ringing(&events));
}

#[test]
fn a_quiet_event_rides_along_with_a_loud_one() {
    let events = Events::new().unwrap();
    events.push(quiet());
    assert!(!is_ringing(&events));
    events.push(loud());
    assert!(is_ringing(&events));
    assert_eq!(events.drain().len(), 2);
}

#[test]
fn while_somebody_waits_quiet_events_ring() {
    let events = Events::new().unwrap();
    events.push(quiet());
    events.set_eager(true);
    assert!(is_ringing(&events), "what was already waiting rings too");
    events.drain();
    events.push(quiet());
    assert!(is_ringing(&events));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_event_without_company_rings_after_a_tick() {
    let events = Events::new().unwrap();
    tokio::spawn(events.clone().keep_ticking());
    events.push(quiet());
    tokio::time::sleep(QUIET_WAIT * 2).await;
    assert!(is_ringing(&events));
}

fn arrived() -> Event {
    let head = RequestHead {
        method: Bytes::from_static(b"POST"),
        path: Bytes::from_static(b"/"),
        query: Bytes::new(),
        fields: Fields::default(),
        framing: Framing::Length(0),
        is_http11: true,
        keep_alive: true,
        expects_continue: false,
    };
    Event::Arrived(Arc::new(Arrival {
        handle: 1,
        listener: "api".into(),
        head,
        body: Bytes::new(),
        problem: None,
        is_standing: false,
        held: Held::nothing(&Bodies::new(1)),
        digest: None,
        client: "192.0.2.1".into(),
        peer: None,
        is_from_own_kind: false,
        request_id: String::new(),
        standing_fields: Arc::default(),
        request_id_names: &[],
        arrived_at: Instant::now(),
        mailbox: Mailbox::new(Arc::default()),
    }))
}

fn answered() -> Event {
    Event::Finished(Finished {
        handle: 1,
        outcome: Outcome::Answered,
        status: 200,
        attempt: 1,
        head_s: 0.1,
        bytes: 2,
        chunks: 1,
        usage: None,
        first_byte_s: 0.1,
        last_byte_s: 0.1,
    })
}

#[test]
fn the_end_of_an_exchange_is_quiet_while_another_runs_and_rings_where_none_does() {
    let events = Events::new().unwrap();
    events.push(arrived());
    events.push(arrived());
    events.drain();
    events.push(answered());
    assert!(!is_ringing(&events));
    events.push(answered());
    assert!(is_ringing(&events));
    assert_eq!(events.drain().len(), 2);
}
