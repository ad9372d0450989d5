//! Who is connected to a listener, and who makes room when it is full?
//!
//! Whoever waits for its client (no request yet, the next one, or the rest of one) makes room for a newcomer, the
//! longest wait first; a connection whose request is whole never does. Invariant: a seat that was called off serves
//! nothing more, so no request is lost by it.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::Notify;

/// Of a full listener's seats this part is freed at once, one at least: the look at all of them is dear.
const FREED_PART: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between two requests, or before the first.
    Idle(Instant),
    /// The head of a request is there, its body is not.
    Receiving(Instant),
    /// A request is whole and not answered yet.
    Running,
}

/// One connection.
pub struct Seat {
    id: u64,
    address: IpAddr,
    state: Mutex<State>,
    is_called_off: AtomicBool,
    leaving: Notify,
}

impl Seat {
    /// The request under way is over.
    pub fn idles(&self) {
        *self.state() = State::Idle(Instant::now());
    }

    /// False when the connection has been called off. So it is with `runs`.
    pub fn receives(&self) -> bool {
        *self.state() = State::Receiving(Instant::now());
        self.is_kept()
    }

    pub fn runs(&self) -> bool {
        *self.state() = State::Running;
        self.is_kept()
    }

    /// Until somebody else needs the room.
    pub async fn called_off(&self) {
        self.leaving.notified().await;
    }

    fn is_kept(&self) -> bool {
        !self.is_called_off.load(Ordering::Acquire)
    }

    /// Smaller for whoever makes room first.
    fn rank(&self) -> Option<(bool, Instant)> {
        match *self.state() {
            State::Idle(since) => Some((false, since)),
            State::Receiving(since) => Some((true, since)),
            State::Running => None,
        }
    }

    fn call_off(&self) {
        self.is_called_off.store(true, Ordering::Release);
        self.leaving.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Taken {
    seats: HashMap<u64, Arc<Seat>>,
    by_address: HashMap<IpAddr, usize>,
    last_id: u64,
}

impl Taken {
    fn count_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    fn add(&mut self, address: IpAddr) -> Arc<Seat> {
        self.last_id += 1;
        let seat = Arc::new(Seat {
            id: self.last_id,
            address,
            state: Mutex::new(State::Idle(Instant::now())),
            is_called_off: AtomicBool::new(false),
            leaving: Notify::new(),
        });
        self.seats.insert(seat.id, seat.clone());
        *self.by_address.entry(address).or_default() += 1;
        seat
    }

    fn remove(&mut self, id: u64) {
        let Some(seat) = self.seats.remove(&id) else {
            return;
        };
        if let Some(count) = self.by_address.get_mut(&seat.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&seat.address);
            }
        }
    }

    /// Frees up to so many seats of those who wait for their clients; false when there is none.
    fn free(&mut self, seats_max: usize, of: Option<IpAddr>) -> bool {
        let is_meant = |seat: &&Arc<Seat>| of.is_none_or(|address| seat.address == address);
        let waiting = self.seats.values().filter(is_meant);
        let mut waiting: Vec<_> = waiting
            .filter_map(|seat| Some((seat.rank()?, seat.id)))
            .collect();
        if waiting.is_empty() {
            return false;
        }
        if waiting.len() > seats_max {
            waiting.select_nth_unstable_by_key(seats_max - 1, |waits| *waits);
            waiting.truncate(seats_max);
        }
        // Whoever has a request half sent goes only where nobody idles.
        let anybody_idles = waiting.iter().any(|((is_receiving, _), _)| !is_receiving);
        for ((is_receiving, _), id) in waiting {
            if is_receiving && anybody_idles {
                continue;
            }
            if let Some(seat) = self.seats.get(&id) {
                seat.call_off();
            }
            self.remove(id);
        }
        true
    }
}

/// All connections of one listener.
pub struct Seats {
    taken: Mutex<Taken>,
    all_max: usize,
    of_address_max: usize,
}

impl Seats {
    pub fn new(all_max: usize, of_address_max: usize) -> Seats {
        Seats {
            taken: Mutex::default(),
            all_max,
            of_address_max,
        }
    }

    /// A seat for a connection from there; else why there is none.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Sitting, &'static str> {
        let address = neighbours(address);
        let mut taken = self.taken();
        if taken.count_of(address) >= self.of_address_max
            && !taken.free((self.of_address_max / FREED_PART).max(1), Some(address))
        {
            return Err("too_many_connections_of_client");
        }
        if taken.seats.len() >= self.all_max
            && !taken.free((self.all_max / FREED_PART).max(1), None)
        {
            return Err("too_many_connections");
        }
        Ok(Sitting {
            seat: taken.add(address),
            seats: self.clone(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has one address of IPv6 has its whole /64.
fn neighbours(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// A seat that is taken; free again when dropped.
pub struct Sitting {
    pub seat: Arc<Seat>,
    seats: Arc<Seats>,
}

impl Drop for Sitting {
    fn drop(&mut self) {
        self.seats.taken().remove(self.seat.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    fn is_called_off(sitting: &Sitting) -> bool {
        !sitting.seat.is_kept()
    }

    #[test]
    fn whoever_has_been_idle_longest_makes_room_and_no_running_request_does() {
        let seats = Arc::new(Seats::new(3, 3));
        let [first, second, third] = [1, 2, 3].map(|last| seats.take(address(last)).ok().unwrap());
        assert!(first.seat.runs() && second.seat.runs());
        second.seat.idles();
        let fourth = seats.take(address(4)).ok().unwrap();
        assert!(is_called_off(&third) && !is_called_off(&first) && !is_called_off(&second));
        assert!(!third.seat.receives() && !third.seat.runs());
        let fifth = seats.take(address(4)).ok().unwrap();
        assert!(is_called_off(&second));
        assert!(fourth.seat.runs() && fifth.seat.runs());
        assert_eq!(seats.take(address(5)).err(), Some("too_many_connections"));
        // Who was called off and ends only now frees nothing a second time.
        drop((second, third));
        assert_eq!(seats.take(address(5)).err(), Some("too_many_connections"));
        drop(first);
        assert!(seats.take(address(5)).is_ok());
    }

    #[test]
    fn whoever_sends_a_request_makes_room_only_where_nobody_idles() {
        let seats = Arc::new(Seats::new(2, 2));
        let sending = seats.take(address(1)).ok().unwrap();
        assert!(sending.seat.receives());
        let idle = seats.take(address(2)).ok().unwrap();
        let newcomer = seats.take(address(3)).ok().unwrap();
        assert!(is_called_off(&idle) && !is_called_off(&sending));
        assert!(newcomer.seat.runs());
        assert!(seats.take(address(4)).is_ok());
        assert!(is_called_off(&sending));
    }

    #[test]
    fn an_address_at_its_bound_makes_room_among_its_own() {
        let seats = Arc::new(Seats::new(8, 2));
        let other = seats.take(address(9)).ok().unwrap();
        let first = seats.take(address(1)).ok().unwrap();
        let second = seats.take(address(1)).ok().unwrap();
        let third = seats.take(address(1)).ok().unwrap();
        assert!(is_called_off(&first) && !is_called_off(&other));
        assert!(second.seat.runs() && third.seat.runs());
        let reason = "too_many_connections_of_client";
        assert_eq!(seats.take(address(1)).err(), Some(reason));
        assert!(seats.take(address(2)).is_ok());
    }

    #[test]
    fn one_network_of_ipv6_counts_as_one_address() {
        let seats = Arc::new(Seats::new(8, 1));
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = seats.take(at("2001:db8::1")).ok().unwrap();
        let second = seats.take(at("2001:db8::2")).ok().unwrap();
        let elsewhere = seats.take(at("2001:db8:0:1::1")).ok().unwrap();
        let mapped = seats.take(at("::ffff:203.0.113.1")).ok().unwrap();
        let called_off = [&first, &second, &elsewhere, &mapped].map(is_called_off);
        assert_eq!(called_off, [true, false, false, false]);
    }

    #[test]
    fn a_large_listener_frees_some_at_once() {
        let seats = Arc::new(Seats::new(1024, 1024));
        let sitting: Vec<_> = (0..1024)
            .map(|_| seats.take(address(1)).ok().unwrap())
            .collect();
        let _newcomer = seats.take(address(2)).ok().unwrap();
        let gone = sitting.iter().filter(|sitting| is_called_off(sitting));
        assert_eq!(gone.count(), 4);
        assert!(sitting[..4].iter().all(is_called_off));
    }
}
