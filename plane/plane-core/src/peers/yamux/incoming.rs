//! What the peer's frames change.

use std::io;

use super::{
    STRANGER_STREAMS_MAX, Side,
    frame::{ACK, FIN, GoAwayCode, Header, Kind, RST, SYN},
    session::{OUT_BYTES_MAX, Session},
    state::State,
};

/// Answers to the peer's own frames that it does not read, before it is given up.
const REPLIES_BYTES_MAX: usize = 1 << 20;
/// What is kept of one stream of a stranger.
const STRANGER_UNREAD_BYTES_MAX: usize = 16 << 10;
/// And of all its streams together.
const STRANGER_UNREAD_SUM_BYTES_MAX: usize = 48 << 10;
/// Frames of all kinds that wait for a stranger to read them.
const STRANGER_REPLIES_BYTES_MAX: usize = 32 << 10;

/// A data frame of which not all has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    stream: u32,
    pub left: usize,
    has_fin: bool,
}

impl Session {
    /// From here on a peer that was welcomed meanwhile may hold what all others may.
    pub fn note_welcome(&mut self) {
        if self
            .config
            .stranger
            .as_ref()
            .is_some_and(|trust| !trust.is_stranger())
        {
            self.config.stranger = None;
        }
    }

    /// Bytes of the data frame under way.
    pub fn data(&mut self, part: &mut Part, bytes: &[u8]) {
        part.left -= bytes.len();
        let unread = match self.config.stranger {
            Some(_) => self.streams.values().map(|state| state.unread.len()).sum(),
            None => 0,
        };
        let Some(state) = self.streams.get_mut(&part.stream) else {
            return;
        };
        if !state.is_reset && !state.is_cut_short && !self.is_over {
            let room = match self.config.stranger {
                Some(_) => STRANGER_UNREAD_BYTES_MAX
                    .saturating_sub(state.unread.len())
                    .min(STRANGER_UNREAD_SUM_BYTES_MAX.saturating_sub(unread)),
                None => bytes.len(),
            };
            // The windows of the protocol cannot begin lower, so what is too much is dropped.
            state.is_cut_short = bytes.len() > room;
            state
                .unread
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        state.fin_received |= part.left == 0 && part.has_fin;
        state.wake_reader();
    }

    /// One frame; for a data frame the payload that has to follow.
    pub fn frame(&mut self, header: Header) -> io::Result<Part> {
        let is_stranger = self.config.stranger.is_some();
        self.pace
            .note(header, is_stranger)
            .map_err(|what| self.broken(what))?;
        let handled = match header.kind {
            Kind::Data | Kind::WindowUpdate => self.stream_frame(header),
            Kind::Ping if header.has(SYN) => {
                self.put(Kind::Ping, ACK, 0, header.length);
                Ok(Part::default())
            }
            Kind::Ping => {
                self.round_trip.answered(header.length);
                Ok(Part::default())
            }
            Kind::GoAway => return Err(closed_by_peer()),
        };
        // Only answers to what the peer sends go beyond what the streams may write.
        let replies_max = match is_stranger {
            true => STRANGER_REPLIES_BYTES_MAX,
            false => OUT_BYTES_MAX + REPLIES_BYTES_MAX,
        };
        let handled = match handled {
            Ok(_) if self.out.len() > replies_max => {
                Err("it does not read the answers to its frames")
            }
            handled => handled,
        };
        handled.map_err(|what| self.broken(what))
    }

    /// The peer has broken the protocol, and is told so.
    pub fn broken(&mut self, what: &'static str) -> io::Error {
        self.go_away(GoAwayCode::ProtocolError);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the peer broke the yamux protocol: {what}"),
        )
    }

    fn stream_frame(&mut self, header: Header) -> Result<Part, &'static str> {
        if header.has(SYN) {
            self.opened(header.stream)?;
        }
        let mut part = Part::default();
        if header.kind == Kind::Data {
            part.stream = header.stream;
            part.left = header.length as usize;
            part.has_fin = header.has(FIN);
        }
        let Some(state) = self.streams.get_mut(&header.stream) else {
            // One we have dropped. The peer may not have heard of it yet; yet where we had said all, nobody
            // else would tell it that what it still writes is never read nor credited.
            if part.left > 0 && !header.has(SYN | RST) && !self.is_over {
                self.put(Kind::Data, RST, header.stream, 0);
            }
            return Ok(part);
        };
        if header.has(RST) {
            state.is_reset = true;
            state.wake();
        } else if header.kind == Kind::WindowUpdate {
            state.credit = state.credit.saturating_add(header.length as usize);
            state.wake_writer();
        } else if state.fin_received && part.left > 0 {
            return Err("data behind the end of its stream");
        } else if !state.window.receive(part.left) {
            return Err("more data than its window allows");
        }
        if header.has(FIN) && part.left == 0 {
            state.fin_received = true;
            state.wake_reader();
        }
        if header.has(ACK) && std::mem::take(&mut state.is_unacknowledged) {
            self.acknowledged();
        }
        Ok(part)
    }

    fn opened(&mut self, id: u32) -> Result<(), &'static str> {
        let is_theirs = id.is_multiple_of(2) == (self.side == Side::Dialer);
        if !is_theirs || id == 0 {
            return Err("a new stream with a number that is not its to give");
        }
        if self.streams.contains_key(&id) {
            return Err("a new stream with the number of another");
        }
        let streams_max = match self.config.stranger {
            Some(_) => STRANGER_STREAMS_MAX.min(self.config.inbound_max),
            None => self.config.inbound_max,
        };
        if self.inbound_live >= streams_max || self.is_over {
            self.put(Kind::Data, RST, id, 0);
            return Ok(());
        }
        self.inbound_live += 1;
        self.streams.insert(id, State::new(true));
        self.accepts.push_back(id);
        self.wake_owner();
        Ok(())
    }
}

pub(super) fn closed_by_peer() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the peer closed the connection",
    )
}
