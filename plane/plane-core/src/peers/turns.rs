//! When handshakes may work: one after the other, fair between addresses, and a third of the thread's time in all.
//!
//! A handshake costs a fraction of a millisecond of arithmetic, which anybody can ask for. As long as they take less
//! than their share they go on at once; beyond it they wait in line, one line for each address.

use std::{
    collections::{HashSet, VecDeque},
    net::IpAddr,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

/// So much work is done without a rest; the turn that goes beyond it is done to its end.
const SLICE: Duration = Duration::from_millis(1);
/// Everything else has twice that time.
const REST_RATIO: u32 = 2;

pub(super) type Group = Option<IpAddr>;

/// Those of one address, in the order in which they came.
type Line = VecDeque<(u64, Waker)>;

#[derive(Default)]
pub(super) struct Turns {
    lines: VecDeque<(Group, Line)>,
    /// Whose turn it is, from when it is woken until it has worked or has gone.
    called: Option<u64>,
    spent: Duration,
    spending_began: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Turns {
    /// Ready when it is the turn of this one; else it is woken when it is. `worked` must follow.
    pub(super) fn poll_turn(&mut self, (group, id): (Group, u64), cx: &Context<'_>) -> Poll<()> {
        if self.called == Some(id) || self.is_free() {
            return Poll::Ready(());
        }
        let at = self.lines.iter().position(|(of, _)| *of == group);
        let at = at.unwrap_or_else(|| {
            self.lines.push_back((group, Line::new()));
            self.lines.len() - 1
        });
        let line = &mut self.lines[at].1;
        match line.iter_mut().find(|(waits, _)| *waits == id) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => line.push_back((id, cx.waker().clone())),
        }
        Poll::Pending
    }

    fn is_free(&self) -> bool {
        self.called.is_none() && self.lines.is_empty() && self.rests_until.is_none()
    }

    /// This one has worked so long. Until when a rest lasts that begins now; then `go_on` is to be called.
    pub(super) fn worked(&mut self, id: u64, began: Instant, took: Duration) -> Option<Instant> {
        // What was spent long ago has been rested from.
        let since = *self.spending_began.get_or_insert(began);
        if self.spent * (REST_RATIO + 1) < began - since {
            self.spent = Duration::ZERO;
            self.spending_began = Some(began);
        }
        self.spent += took;
        let mut begins = None;
        if self.spent >= SLICE && self.rests_until.is_none() {
            begins = Some(began + took + self.spent * REST_RATIO);
            self.rests_until = begins;
            self.spent = Duration::ZERO;
            self.spending_began = None;
        }
        self.done(id);
        begins
    }

    fn done(&mut self, id: u64) {
        if self.called == Some(id) {
            self.called = None;
            self.call_next();
        }
    }

    /// This one is over, whether it had its turn or waits for it.
    pub(super) fn leave(&mut self, id: u64) {
        for (_, line) in &mut self.lines {
            line.retain(|(waits, _)| *waits != id);
        }
        self.lines.retain(|(_, line)| !line.is_empty());
        self.done(id);
    }

    /// Those who wait for their turn, or have it: what they take is not their peers' fault.
    pub(super) fn in_line(&self) -> HashSet<u64> {
        let lines = self.lines.iter().flat_map(|(_, line)| line);
        lines.map(|(id, _)| *id).chain(self.called).collect()
    }

    /// The rest is over.
    pub(super) fn go_on(&mut self) {
        self.rests_until = None;
        self.call_next();
    }

    fn call_next(&mut self) {
        if self.called.is_some() || self.rests_until.is_some() {
            return;
        }
        let Some((group, mut line)) = self.lines.pop_front() else {
            return;
        };
        if let Some((id, waker)) = line.pop_front() {
            self.called = Some(id);
            waker.wake();
        }
        if !line.is_empty() {
            self.lines.push_back((group, line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Group {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// The turns at rest, with these in line.
    fn resting(waiting: &[(Group, u64)]) -> Turns {
        let mut turns = Turns::default();
        let now = Instant::now();
        let cx = Context::from_waker(Waker::noop());
        assert!(turns.poll_turn((ip(9), 99), &cx).is_ready());
        let rest = turns.worked(99, now, SLICE);
        assert_eq!(rest, Some(now + SLICE * (REST_RATIO + 1)));
        for &of in waiting {
            assert!(turns.poll_turn(of, &cx).is_pending());
        }
        turns
    }

    /// Who is called, one after the other, when each works next to nothing.
    fn called(turns: &mut Turns) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(id) = turns.called {
            all.push(id);
            turns.worked(id, Instant::now(), Duration::ZERO);
        }
        all
    }

    #[test]
    fn addresses_take_turns_however_many_one_of_them_sends() {
        let mut turns = resting(&[(ip(1), 1), (ip(1), 2), (ip(1), 3), (ip(2), 4), (None, 5)]);
        turns.go_on();
        assert_eq!(called(&mut turns), [1, 4, 5, 2, 3]);
        assert!(turns.is_free());
    }

    #[test]
    fn nobody_works_while_there_is_a_rest() {
        let mut turns = resting(&[(ip(1), 1), (ip(1), 2)]);
        assert!(called(&mut turns).is_empty());
        turns.go_on();
        assert!(turns.worked(1, Instant::now(), SLICE).is_some());
        assert!(called(&mut turns).is_empty());
        assert_eq!(turns.in_line(), HashSet::from([2]));
    }

    #[test]
    fn who_leaves_gives_the_turn_on() {
        let mut turns = resting(&[(ip(1), 1), (ip(1), 2), (ip(1), 3)]);
        turns.leave(2);
        turns.go_on();
        turns.leave(1);
        assert_eq!(called(&mut turns), [3]);
    }

    #[test]
    fn what_takes_less_than_its_share_never_waits() {
        let mut turns = Turns::default();
        let start = Instant::now();
        for step in 0..1000_u32 {
            let now = start + SLICE * 2 * step;
            assert_eq!(turns.worked(1, now, SLICE / 2), None);
        }
    }
}
