use super::*;

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
