//! Which bytes of an SSE stream are data, and where does an event end?
//!
//! Follows the line rules of the WHATWG event stream: lines end with LF, CRLF or CR, a blank line ends
//! the event, one space after the colon is dropped, a byte order mark may come first. Invariant: a line
//! or an event may be cut anywhere, and its length costs no memory.
//! Source: WHATWG HTML, "Interpreting an event stream"; field-cases.md O-08.

use super::json::Walker;
use super::number::Literal;
use super::tally::Tally;

const DONE: &[u8] = b"[DONE]";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug)]
pub(super) struct Lines {
    part: Part,
    /// The field's name, as much as has come of it.
    name: Literal,
    /// The value of the event's `event:` line.
    event_name: Literal,
    /// Bytes of the byte order mark that have come; it is looked for at the very start only.
    mark_seen: Option<u8>,
    /// The next byte may be the space after the colon.
    space_next: bool,
    /// How far this data line spells `[DONE]`; `None` once it does not.
    done_seen: Option<u8>,
    /// The event has a data line before this one, and a byte of data at all.
    has_data_line: bool,
    has_data: bool,
    between_events: bool,
    /// A CR was the last byte: a LF that follows belongs to it.
    after_cr: bool,
    /// How the last line ended, and the one before it.
    ends: (LineEnd, LineEnd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// No byte of the line has come.
    LineStart,
    Name,
    Value(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    None,
    Cr,
    Lf,
    CrLf,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            part: Part::LineStart,
            name: Literal::default(),
            event_name: Literal::default(),
            mark_seen: Some(0),
            space_next: false,
            done_seen: None,
            has_data_line: false,
            has_data: false,
            between_events: true,
            after_cr: false,
            ends: (LineEnd::None, LineEnd::None),
        }
    }

    /// Whether the bytes so far end where another event may begin.
    ///
    /// A blank line that ends with CR is only trusted where the line before ended with a bare CR too:
    /// else its LF may be missing.
    pub(super) fn at_boundary(&self) -> bool {
        self.between_events && !(self.after_cr && self.ends.1 != LineEnd::Cr)
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], walker: &mut Walker, tally: &mut Tally) {
        while !bytes.is_empty() {
            let used = if self.after_cr {
                self.line_feed_of_crlf(bytes[0])
            } else {
                match self.part {
                    Part::LineStart => self.line_start(bytes, walker, tally),
                    Part::Name => self.name(bytes, walker, tally),
                    Part::Value(field) => self.value(field, bytes, walker, tally),
                }
            };
            bytes = &bytes[used..];
        }
    }

    fn line_feed_of_crlf(&mut self, byte: u8) -> usize {
        self.after_cr = false;
        if byte != b'\n' {
            return 0;
        }
        self.ends.0 = LineEnd::CrLf;
        1
    }

    fn line_start(&mut self, bytes: &[u8], walker: &mut Walker, tally: &mut Tally) -> usize {
        if let Some(seen) = self.mark_seen {
            if bytes[0] == BYTE_ORDER_MARK[usize::from(seen)] {
                self.mark_seen = (seen < 2).then_some(seen + 1);
                self.between_events = seen == 2;
                return 1;
            }
            self.mark_seen = None;
            if seen > 0 {
                // What looked like the mark is the start of an unknown field's name.
                self.name.clear();
                self.name.push(&BYTE_ORDER_MARK[..usize::from(seen)]);
                self.part = Part::Name;
                return 0;
            }
        }
        if matches!(bytes[0], b'\r' | b'\n') {
            self.blank_line(walker, tally);
            self.line_ended(bytes[0]);
            self.between_events = true;
            return 1;
        }
        self.between_events = false;
        if bytes.starts_with(b"data:") {
            self.begin_value(Field::Data, walker, tally);
            return 5;
        }
        self.name.clear();
        self.part = Part::Name;
        0
    }

    fn name(&mut self, bytes: &[u8], walker: &mut Walker, tally: &mut Tally) -> usize {
        let end = memchr::memchr3(b':', b'\r', b'\n', bytes);
        self.name.push(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else {
            return bytes.len();
        };
        let field = match self.name.get() {
            b"data" => Field::Data,
            b"event" => Field::Event,
            _ => Field::Other,
        };
        self.begin_value(field, walker, tally);
        if bytes[end] != b':' {
            // A name without a colon has an empty value; the line's end is the value's business.
            return end + self.value(field, &bytes[end..], walker, tally);
        }
        end + 1
    }

    fn begin_value(&mut self, field: Field, walker: &mut Walker, tally: &mut Tally) {
        self.part = Part::Value(field);
        self.space_next = true;
        match field {
            Field::Data => {
                if self.has_data_line {
                    // Data lines are joined by a line feed, which between values means nothing.
                    walker.feed(b"\n", tally);
                }
                self.has_data_line = true;
                self.done_seen = Some(0);
            }
            Field::Event => self.event_name.clear(),
            Field::Other => {}
        }
    }

    fn value(
        &mut self,
        field: Field,
        bytes: &[u8],
        walker: &mut Walker,
        tally: &mut Tally,
    ) -> usize {
        let end = memchr::memchr2(b'\r', b'\n', bytes);
        let mut piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.space_next && !piece.is_empty() {
            self.space_next = false;
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
        }
        match field {
            Field::Data if !piece.is_empty() => self.data(piece, walker, tally),
            Field::Event => self.event_name.push(piece),
            Field::Data | Field::Other => {}
        }
        match end {
            Some(end) => {
                self.line_ended(bytes[end]);
                end + 1
            }
            None => bytes.len(),
        }
    }

    fn data(&mut self, piece: &[u8], walker: &mut Walker, tally: &mut Tally) {
        self.has_data = true;
        if let Some(seen) = self.done_seen {
            let rest = &DONE[usize::from(seen)..];
            let common = rest.iter().zip(piece).take_while(|(a, b)| a == b).count();
            self.done_seen = None;
            if common == rest.len() {
                tally.terminator_seen = true;
            } else if common == piece.len() {
                // `DONE` is six bytes, so the sum fits.
                self.done_seen = Some(seen + common as u8);
            }
        }
        walker.feed(piece, tally);
    }

    /// The event is over: it counts if it had data.
    fn blank_line(&mut self, walker: &mut Walker, tally: &mut Tally) {
        if self.has_data {
            tally.event_type(self.event_name.get());
            tally.event_end();
            walker.reset();
        }
        self.has_data = false;
        self.has_data_line = false;
        self.event_name.clear();
    }

    fn line_ended(&mut self, byte: u8) {
        self.part = Part::LineStart;
        self.after_cr = byte == b'\r';
        let end = match self.after_cr {
            true => LineEnd::Cr,
            false => LineEnd::Lf,
        };
        self.ends = (end, self.ends.0);
    }
}
