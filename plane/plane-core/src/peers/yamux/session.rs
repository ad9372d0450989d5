//! What both ends of a connection know of its streams, and the frames that change it.
//!
//! The streams write their frames into one buffer, which the driver takes as a whole; the driver hands in
//! what came. Everything is behind one lock, which is held for no longer than a copy takes.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{
    MuxConfig, Side,
    frame::{FIN, GoAwayCode, Header, Kind, RST, SYN},
    pace::Pace,
    round_trip::RoundTrip,
    state::{State, wait},
    turns::Turns,
    window::WINDOW_BYTES,
};

/// Streams the peer has not acknowledged; an original resets what is beyond. Source: wire.md 5.5.
pub const ACK_BACKLOG: usize = 256;
/// Frames that wait for the socket; beyond, whoever writes waits.
pub(super) const OUT_BYTES_MAX: usize = 128 << 10;
/// A stream that is taken up gets one of so many parts of what windows may still grow by, so that
/// however many there are, a long prompt on the next one finds some.
pub const EXTRA_PARTS: usize = 8;

pub(super) type Shared = Arc<Mutex<Session>>;

// Nothing under the lock panics by design; should it do so all the same, the others go on.
pub(super) fn lock(session: &Shared) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Session {
    pub config: MuxConfig,
    pub side: Side,
    pub streams: HashMap<u32, State>,
    next: u32,
    pub unacknowledged: usize,
    pub inbound_live: usize,
    pub accepts: VecDeque<u32>,
    /// What windows may still grow by.
    extra_left: usize,
    pub round_trip: RoundTrip,
    pub pace: Pace,
    /// Frames in the order they were written.
    pub out: Vec<u8>,
    turns: Turns,
    /// No stream works any more, and why the connection ended unless we wanted it to.
    pub is_over: bool,
    failure: Option<io::Error>,
    /// `GoAway` is among the frames; the driver ends when all have left.
    pub is_closing: bool,
    /// The driver has ended.
    pub is_ended: bool,
    /// Nobody owns the connection any more.
    pub is_abandoned: bool,
    owner: Option<Waker>,
    pub driver: Option<Waker>,
    /// The driver wants to be told of the next frame.
    pub wants_frames: bool,
}

impl Session {
    pub fn new(config: MuxConfig, side: Side) -> Session {
        Session {
            extra_left: config.window_extra_bytes,
            next: match side {
                Side::Dialer => 1,
                Side::Listener => 2,
            },
            config,
            side,
            streams: HashMap::new(),
            unacknowledged: 0,
            inbound_live: 0,
            accepts: VecDeque::new(),
            round_trip: RoundTrip::default(),
            pace: Pace::default(),
            out: Vec::new(),
            turns: Turns::new(),
            is_over: false,
            failure: None,
            is_closing: false,
            is_ended: false,
            is_abandoned: false,
            owner: None,
            driver: None,
            wants_frames: false,
        }
    }

    pub fn put(&mut self, kind: Kind, flags: u16, stream: u32, length: u32) {
        let header = Header {
            kind,
            flags,
            stream,
            length,
        };
        self.out.extend_from_slice(&header.encode());
        if std::mem::take(&mut self.wants_frames) {
            self.wake_driver();
        }
    }

    fn wake_driver(&self) {
        if let Some(waker) = &self.driver {
            waker.wake_by_ref();
        }
    }

    /// A stream of ours was taken up, or given up before that.
    pub fn acknowledged(&mut self) {
        self.unacknowledged -= 1;
        if self.unacknowledged + 1 == ACK_BACKLOG {
            self.wake_owner();
        }
    }

    pub fn wake_owner(&mut self) {
        if let Some(waker) = self.owner.take() {
            waker.wake();
        }
    }

    // What the streams do.

    pub fn poll_read(
        &mut self,
        id: u32,
        into: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some(state) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(reset()));
        };
        if !state.unread.is_empty() {
            let bytes = state.take_unread(into);
            let may_send = !state.fin_received && !state.is_reset && !self.is_over;
            if may_send && state.window.read(bytes) {
                self.give_credit(id);
            }
            return Poll::Ready(Ok(bytes));
        }
        // What was cut short must not look whole, and whoever waits for an answer to it may still get one.
        if state.fin_received && !state.is_cut_short {
            return Poll::Ready(Ok(0));
        }
        if state.is_reset || self.is_over {
            return Poll::Ready(Err(reset()));
        }
        wait(&mut state.reader, cx);
        Poll::Pending
    }

    fn give_credit(&mut self, id: u32) {
        let Some(state) = self.streams.get_mut(&id) else {
            return;
        };
        let round_trip = self.round_trip.known();
        let credit = state.window.credit(round_trip, &mut self.extra_left);
        let flags = std::mem::take(&mut state.flags);
        self.put(Kind::WindowUpdate, flags, id, credit as u32);
        if let Some(value) = self.round_trip.ask() {
            self.put(Kind::Ping, SYN, 0, value);
        }
    }

    pub fn poll_write(
        &mut self,
        id: u32,
        from: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let is_full = self.out.len() >= OUT_BYTES_MAX;
        let state = match self.streams.get_mut(&id) {
            Some(state) if !state.is_reset && !state.fin_sent && !self.is_over => state,
            _ => return Poll::Ready(Err(reset())),
        };
        if from.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let share = match is_full {
            true => 0,
            false => self.turns.left(&state.written),
        };
        if state.credit == 0 || share == 0 {
            wait(&mut state.writer, cx);
            if share == 0 && !std::mem::replace(&mut state.is_held_back, true) {
                self.turns.wait(id, &state.written);
            }
            return Poll::Pending;
        }
        let bytes_max = self.config.frame_bytes.min(state.credit).min(share);
        let bytes = from.len().min(bytes_max);
        state.credit -= bytes;
        self.turns.wrote(&mut state.written, bytes);
        let flags = std::mem::take(&mut state.flags);
        self.put(Kind::Data, flags, id, bytes as u32);
        self.out.extend_from_slice(&from[..bytes]);
        Poll::Ready(Ok(bytes))
    }

    /// Sends FIN, once; on a stream that is gone nothing happens.
    pub fn finish(&mut self, id: u32) {
        let state = match self.streams.get_mut(&id) {
            Some(state) if !state.is_reset && !state.fin_sent && !self.is_over => state,
            _ => return,
        };
        state.fin_sent = true;
        let flags = std::mem::take(&mut state.flags) | FIN;
        self.put(Kind::Data, flags, id, 0);
    }

    /// Nobody holds the stream any more.
    pub fn remove(&mut self, id: u32) {
        let Some(state) = self.streams.remove(&id) else {
            return;
        };
        self.extra_left += state.window.extra();
        if state.is_inbound {
            self.inbound_live -= 1;
        }
        if state.is_unacknowledged {
            self.acknowledged();
        }
        let is_known_to_peer = state.flags & SYN == 0;
        // One that has said all it wanted to may leave a peer behind that waits for credit for good.
        let is_open = !state.fin_sent || (!state.fin_received && state.window.is_used_up());
        if is_known_to_peer && is_open && !state.is_reset && !self.is_over {
            // At a reset an original forgets what it has not read. It has said all and waits for the
            // answer, and one whose head was lost so would cost its agent the whole link.
            let how = if state.fin_received { FIN } else { RST };
            self.put(Kind::Data, state.flags | how, id, 0);
        }
    }

    // What the owner of the connection does.

    /// A stream of our own, unless the peer has too many of them to take up; the first frame opens it.
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u32>> {
        if self.is_over {
            return Poll::Ready(Err(reset()));
        }
        if self.unacknowledged >= ACK_BACKLOG {
            wait(&mut self.owner, cx);
            return Poll::Pending;
        }
        let id = self.next;
        let Some(next) = id.checked_add(2) else {
            return Poll::Ready(Err(io::Error::other("all stream numbers are used up")));
        };
        self.next = next;
        self.unacknowledged += 1;
        self.streams.insert(id, State::new(false));
        Poll::Ready(Ok(id))
    }

    /// The next stream the peer has opened. Taking it up is what gives it a wider window.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
        let Some(id) = self.accepts.pop_front() else {
            wait(&mut self.owner, cx);
            return Poll::Pending;
        };
        if let Some(state) = self.streams.get_mut(&id)
            && !state.is_reset
            && !state.fin_received
        {
            let fair = WINDOW_BYTES + self.extra_left / EXTRA_PARTS;
            let size = self.config.inbound_window_bytes.min(fair);
            let credit = state.window.grow_to(size, &mut self.extra_left);
            if credit > 0 {
                let flags = std::mem::take(&mut state.flags);
                self.put(Kind::WindowUpdate, flags, id, credit as u32);
            }
        }
        Poll::Ready(id)
    }

    /// Ready once the connection has ended by itself.
    pub fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.is_ended {
            return Poll::Ready(self.failure.take().unwrap_or_else(reset));
        }
        wait(&mut self.owner, cx);
        Poll::Pending
    }

    /// Ends the streams and tells the peer; ready once that has left.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_ended {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_closing, true) {
            self.end_streams();
            self.go_away(GoAwayCode::Normal);
            self.wake_driver();
        }
        wait(&mut self.owner, cx);
        Poll::Pending
    }

    /// Nothing is sent any more, not even what was written.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
        self.end_streams();
        self.wake_driver();
    }

    pub fn go_away(&mut self, code: GoAwayCode) {
        self.put(Kind::GoAway, 0, 0, code as u32);
    }

    fn end_streams(&mut self) {
        self.is_over = true;
        for state in self.streams.values_mut() {
            state.wake();
        }
    }

    // What the driver does.

    /// The driver has ended, for this reason if we did not want it to.
    ///
    /// The streams end when the owner has noticed, so that whoever sees one of them end by the loss of the
    /// connection finds the connection marked as closed.
    pub fn end(&mut self, ended: io::Result<()>) {
        self.is_ended = true;
        self.failure = ended.err();
        self.wake_owner();
    }

    /// Exchanges the empty `sent` for the frames that wait, and lets those write who were held back.
    pub fn take_frames(&mut self, sent: &mut Vec<u8>) -> bool {
        if self.out.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.out, sent);
        for id in self.turns.next(self.config.frame_bytes) {
            if let Some(state) = self.streams.get_mut(&id) {
                state.is_held_back = false;
                state.wake_writer();
            }
        }
        true
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
