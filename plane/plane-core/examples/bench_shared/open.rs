//! What does it cost a router that many connections or streams are open at once? Opens them, says on one line how many
//! there are, and holds them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::client::{Connection, Sink, Unread};

const BETWEEN_STREAMS: Duration = Duration::from_millis(1);
/// How long the last stream may take to begin.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);

/// Opens all connections, sends a request on each, and holds those that were answered well and kept.
pub async fn connections(plan: &Plan) -> Result<(), String> {
    let mut held = Vec::with_capacity(plan.clients);
    for _ in 0..plan.clients {
        let Ok(mut connection) = Connection::open(&plan.target).await else {
            continue;
        };
        let answer = connection.exchange(&plan.request, &mut Unread).await;
        if answer.is_ok_and(|answer| answer.keep && crate::is_good(answer.status)) {
            held.push(connection);
        }
    }
    say(held.len());
    tokio::time::sleep(plan.window).await;
    Ok(())
}

/// Opens all streams and reads them.
pub async fn streams(plan: Rc<Plan>) -> Result<(), String> {
    let (open, over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for _ in 0..plan.clients {
        tokio::task::spawn_local(stream(Rc::clone(&plan), Rc::clone(&open), Rc::clone(&over)));
        tokio::time::sleep(BETWEEN_STREAMS).await;
    }
    let deadline = Instant::now() + BEGIN_WITHIN;
    while open.get() + over.get() < plan.clients && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    say(open.get());
    tokio::time::sleep(plan.window).await;
    Ok(())
}

/// Reads one stream; it is open from its first chunk to its end.
async fn stream(plan: Rc<Plan>, open: Rc<Cell<usize>>, over: Rc<Cell<usize>>) {
    let mut begun = Begun {
        open: &open,
        events: false,
    };
    if let Ok(mut connection) = Connection::open(&plan.target).await {
        connection.exchange(&plan.request, &mut begun).await.ok();
    }
    if begun.events {
        open.set(open.get() - 1);
    }
    over.set(over.get() + 1);
}

fn say(held: usize) {
    println!("{{\"held\":{held}}}");
}

/// Counts a stream when its first event comes; a refusal has none.
struct Begun<'a> {
    open: &'a Cell<usize>,
    events: bool,
}

impl Sink for Begun<'_> {
    fn data(&mut self, bytes: &[u8]) {
        if !self.events && bytes.starts_with(b"data: ") {
            self.events = true;
            self.open.set(self.open.get() + 1);
        }
    }

    fn turn(&mut self) {}
}
