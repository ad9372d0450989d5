//! When was each chunk of a stream written, and when was it read? Events are put together again line by line, so a
//! router may cut the stream into other pieces than the engine did.

use std::cell::RefCell;
use std::time::Instant;

use memchr::memmem::Finder;

use crate::client::Sink;
use crate::clock::{STAMP_DIGITS, STAMP_MARK, now_ns};
use crate::tally::{Tally, nanos};

/// Reads one stream into a tally.
pub struct Events<'a> {
    tally: &'a RefCell<Tally>,
    mark: &'a Finder<'static>,
    sent_at: Instant,
    text: Vec<u8>,
    delay_ns: Option<u64>,
    pub first_ns: Option<u64>,
    pub chunks: usize,
    pub ended: bool,
}

impl<'a> Events<'a> {
    pub fn new(tally: &'a RefCell<Tally>, mark: &'a Finder<'static>) -> Self {
        Self {
            tally,
            mark,
            sent_at: Instant::now(),
            text: Vec::new(),
            delay_ns: None,
            first_ns: None,
            chunks: 0,
            ended: false,
        }
    }

    /// Finds the stamps; make one and keep it.
    pub fn mark() -> Finder<'static> {
        Finder::new(STAMP_MARK)
    }
}

impl Sink for Events<'_> {
    fn data(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn turn(&mut self) {
        let read_ns = now_ns();
        let now = Instant::now();
        let mut tally = self.tally.borrow_mut();
        let in_window = tally.in_window(now);
        let mut line_at = 0;
        for end in memchr::memchr_iter(b'\n', &self.text) {
            let line = &self.text[line_at..end];
            line_at = end + 1;
            if let Some(written_ns) = stamp(line, self.mark) {
                if self.chunks == 0 && in_window {
                    tally.first_byte.record(nanos(now - self.sent_at));
                }
                self.first_ns.get_or_insert(read_ns);
                self.chunks += 1;
                let delay_ns = read_ns.saturating_sub(written_ns);
                tally.chunk(delay_ns, self.delay_ns.replace(delay_ns), in_window);
            } else if line.starts_with(b"data: [DONE]") {
                self.ended = true;
            }
        }
        self.text.drain(..line_at);
    }
}

fn stamp(line: &[u8], mark: &Finder<'_>) -> Option<u64> {
    let at = mark.find(line)? + STAMP_MARK.len();
    let digits = line.get(at..at + STAMP_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
