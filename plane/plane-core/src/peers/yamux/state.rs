//! What is known of one stream.

use std::task::{Context, Waker};

use bytes::{Buf, BytesMut};

use super::{
    frame::{ACK, SYN},
    turns::Written,
    window::{ReceiveWindow, WINDOW_BYTES},
};

/// An empty buffer up to this is kept for the next bytes of its stream.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// One stream.
pub(super) struct State {
    pub unread: BytesMut,
    pub window: ReceiveWindow,
    /// Bytes we may send.
    pub credit: usize,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub fin_received: bool,
    pub fin_sent: bool,
    pub is_reset: bool,
    /// A stranger sent more than is kept of one, and what came behind is lost.
    pub is_cut_short: bool,
    pub written: Written,
    /// Waits for the next turn, not for credit.
    pub is_held_back: bool,
    /// `SYN` or `ACK`, which rides with the stream's next frame.
    pub flags: u16,
    /// We opened it, and the peer has not taken it up yet.
    pub is_unacknowledged: bool,
    pub is_inbound: bool,
}

impl State {
    pub fn new(is_inbound: bool) -> State {
        State {
            unread: BytesMut::new(),
            window: ReceiveWindow::new(),
            credit: WINDOW_BYTES,
            reader: None,
            writer: None,
            fin_received: false,
            fin_sent: false,
            is_reset: false,
            is_cut_short: false,
            written: Written::default(),
            is_held_back: false,
            flags: if is_inbound { ACK } else { SYN },
            is_unacknowledged: !is_inbound,
            is_inbound,
        }
    }

    pub fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
    }

    pub fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    pub fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }

    /// Copies what is there and shrinks a buffer that a burst has made large.
    pub fn take_unread(&mut self, into: &mut [u8]) -> usize {
        let bytes = into.len().min(self.unread.len());
        into[..bytes].copy_from_slice(&self.unread[..bytes]);
        self.unread.advance(bytes);
        if self.unread.is_empty() && self.unread.capacity() > KEPT_BYTES_MAX {
            self.unread = BytesMut::new();
        }
        bytes
    }
}

/// Notes who is to be called.
pub(super) fn wait(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}
