//! What values stand in a JSON text that comes in pieces and may not quite be JSON?
//!
//! A push walker: bytes in, findings into the [`Tally`]. Invariants: its memory is fixed, whatever the
//! text; the findings do not depend on the pieces; no input is an error. Brackets, strings and escapes
//! are followed exactly; literals (`NaN` too) are only stepped over; strings outside the tracked places
//! are skipped at the speed of `memchr`. What a member means is [`Place::member`]'s business.

use super::number::Literal;
use super::place::{Meaning, Place, ReasoningName};
use super::tally::Tally;

/// Nesting followed by name. The known places need 7; deeper arrays of them count as unknown.
const FRAMES_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Walker {
    root: Place,
    frames: [Frame; FRAMES_MAX],
    /// Open brackets that have a frame, and those inside them that have none.
    tracked: usize,
    untracked: usize,
    /// The next string is a member name.
    name_next: bool,
    /// What the next value means, and the place inside it.
    next: (Meaning, Place),
    state: State,
    /// A name, a type or a number, as much as has come of it.
    captured: Literal,
    /// The last escape was the first half of a surrogate pair.
    high_surrogate: bool,
    closed_objects: u32,
    malformed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    place: Place,
    is_object: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Literal,
    String(StringUse),
    Escape(StringUse),
    Hex {
        string: StringUse,
        digits_left: u8,
        value: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringUse {
    Skip,
    Name,
    Text,
    Reasoning(ReasoningName),
    EventType,
    ObjectKind,
}

impl Walker {
    pub(super) fn new(root: Place) -> Self {
        Self {
            root,
            frames: [Frame::default(); FRAMES_MAX],
            tracked: 0,
            untracked: 0,
            name_next: false,
            next: (Meaning::Nothing, root),
            state: State::Between,
            captured: Literal::default(),
            high_surrogate: false,
            closed_objects: 0,
            malformed: false,
        }
    }

    /// Forgets the text so far; the next byte begins a new one.
    pub(super) fn reset(&mut self) {
        self.tracked = 0;
        self.untracked = 0;
        self.name_next = false;
        self.next = (Meaning::Nothing, self.root);
        self.state = State::Between;
        self.high_surrogate = false;
        self.closed_objects = 0;
        self.malformed = false;
    }

    /// Whether the text was one object, closed, with nothing but white space around it.
    pub(super) fn is_whole_object(&self) -> bool {
        self.closed_objects == 1
            && self.tracked + self.untracked == 0
            && self.state == State::Between
            && !self.malformed
    }

    /// Whether the text is one object as far as it has come.
    pub(super) fn is_object_so_far(&self) -> bool {
        !self.malformed && self.closed_objects <= 1
    }

    /// Whether an object or array has come and every bracket and string of it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed_objects > 0
            && self.tracked + self.untracked == 0
            && self.state == State::Between
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], tally: &mut Tally) {
        while !bytes.is_empty() {
            let used = match self.state {
                State::Between if self.untracked > 0 => self.skip(bytes),
                State::Between => self.between(bytes, tally),
                State::Literal => self.literal(bytes, tally),
                State::String(string) => self.string(string, bytes, tally),
                State::Escape(string) => self.escape(string, bytes[0], tally),
                State::Hex { .. } => self.hex_digit(bytes[0], tally),
            };
            bytes = &bytes[used..];
        }
    }

    /// Moves on between values, up to the next string or literal; gives the bytes used.
    fn between(&mut self, bytes: &[u8], tally: &mut Tally) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.open_string(tally);
                    return index + 1;
                }
                b'{' | b'[' => {
                    self.open(*byte == b'{', tally);
                    if self.untracked > 0 {
                        return index + 1;
                    }
                }
                b'}' | b']' => self.close(tally),
                b',' => self.expect_next(),
                b':' => self.name_next = false,
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => {
                    self.malformed |= self.name_next
                        || self.tracked == 0
                        || !matches!(byte, b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I');
                    self.captured.clear();
                    self.state = State::Literal;
                    return index;
                }
            }
        }
        bytes.len()
    }

    /// The same inside a value that nobody needs: only brackets and strings are looked at.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.state = State::String(StringUse::Skip);
                    return index + 1;
                }
                b'{' | b'[' => self.untracked += 1,
                b'}' | b']' => {
                    self.untracked -= 1;
                    if self.untracked == 0 {
                        return index + 1;
                    }
                }
                _ => {}
            }
        }
        bytes.len()
    }

    fn open(&mut self, is_object: bool, tally: &mut Tally) {
        let (meaning, place) = self.next;
        mark_present(meaning, tally);
        self.malformed |= self.tracked == 0 && (!is_object || self.closed_objects > 0);
        if place == Place::Nowhere || self.tracked == FRAMES_MAX {
            self.untracked = 1;
            return;
        }
        self.frames[self.tracked] = Frame { place, is_object };
        self.tracked += 1;
        self.expect_next();
    }

    fn close(&mut self, tally: &mut Tally) {
        if self.tracked == 0 {
            self.malformed = true;
            return;
        }
        self.tracked -= 1;
        self.name_next = false;
        if self.tracked == 0 {
            self.closed_objects = self.closed_objects.saturating_add(1);
            self.next = (Meaning::Nothing, self.root);
            tally.object_end();
        }
    }

    /// After `{`, `[` or `,`: a name comes next in an object, in an array another element.
    fn expect_next(&mut self) {
        if let Some(frame) = self.frame() {
            self.name_next = frame.is_object;
            self.next = match frame.is_object {
                true => (Meaning::Nothing, Place::Nowhere),
                false => (Meaning::Nothing, frame.place),
            };
        }
    }

    fn frame(&self) -> Option<Frame> {
        let index = self.tracked.checked_sub(1)?;
        Some(self.frames[index])
    }

    fn open_string(&mut self, tally: &mut Tally) {
        self.malformed |= self.tracked == 0;
        self.captured.clear();
        self.high_surrogate = false;
        let string = if self.name_next {
            StringUse::Name
        } else {
            mark_present(self.next.0, tally);
            match self.next.0 {
                Meaning::Text => StringUse::Text,
                Meaning::Reasoning(name) => StringUse::Reasoning(name),
                Meaning::EventType => StringUse::EventType,
                Meaning::ObjectKind => StringUse::ObjectKind,
                _ => StringUse::Skip,
            }
        };
        self.state = State::String(string);
    }

    /// Moves on inside a string, up to its end or the next escape.
    fn string(&mut self, string: StringUse, bytes: &[u8], tally: &mut Tally) -> usize {
        let found = memchr::memchr2(b'"', b'\\', bytes);
        let end = found.unwrap_or(bytes.len());
        if end > 0 {
            self.high_surrogate = false;
            match string {
                StringUse::Skip => {}
                StringUse::Text | StringUse::Reasoning(_) => add(string, end as u64, tally),
                StringUse::Name | StringUse::EventType | StringUse::ObjectKind => {
                    self.captured.push(&bytes[..end]);
                }
            }
        }
        match found.map(|index| bytes[index]) {
            Some(b'"') => self.close_string(string, tally),
            Some(_) => self.state = State::Escape(string),
            None => return end,
        }
        end + 1
    }

    fn close_string(&mut self, string: StringUse, tally: &mut Tally) {
        self.state = State::Between;
        match string {
            StringUse::Name => {
                self.name_next = false;
                if let Some(frame) = self.frame() {
                    self.next = frame.place.member(self.captured.get());
                }
            }
            StringUse::EventType => tally.event_type(self.captured.get()),
            StringUse::ObjectKind => tally.error_event_seen |= self.captured.get() == b"error",
            StringUse::Skip | StringUse::Text | StringUse::Reasoning(_) => {}
        }
    }

    fn escape(&mut self, string: StringUse, byte: u8, tally: &mut Tally) -> usize {
        // No name or type that is looked for is written with escapes; this one matches nothing.
        self.captured.push(b"\\");
        if byte == b'u' {
            self.state = State::Hex {
                string,
                digits_left: 4,
                value: 0,
            };
        } else {
            self.high_surrogate = false;
            add(string, 1, tally);
            self.state = State::String(string);
        }
        1
    }

    fn hex_digit(&mut self, byte: u8, tally: &mut Tally) -> usize {
        let State::Hex {
            string,
            digits_left,
            value,
        } = self.state
        else {
            return 0;
        };
        let Some(digit) = (byte as char).to_digit(16) else {
            // Not an escape that JSON knows: go on as if it had ended here.
            self.malformed = true;
            self.state = State::String(string);
            return 0;
        };
        let value = value << 4 | digit as u16;
        if digits_left > 1 {
            self.state = State::Hex {
                string,
                digits_left: digits_left - 1,
                value,
            };
            return 1;
        }
        add(string, self.utf8_bytes(value), tally);
        self.state = State::String(string);
        1
    }

    /// UTF-8 bytes that one UTF-16 unit adds; half a pair alone counts as three.
    fn utf8_bytes(&mut self, unit: u16) -> u64 {
        let completes_pair = self.high_surrogate;
        self.high_surrogate = (0xd800..0xdc00).contains(&unit);
        match unit {
            0..0x80 => 1,
            0x80..0x800 => 2,
            0xdc00..0xe000 if completes_pair => 1,
            _ => 3,
        }
    }

    fn literal(&mut self, bytes: &[u8], tally: &mut Tally) -> usize {
        let ends = |byte: &u8| {
            matches!(
                byte,
                b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[' | b' ' | b'\t' | b'\n' | b'\r'
            )
        };
        let end = bytes.iter().position(ends);
        self.captured.push(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else {
            return bytes.len();
        };
        self.state = State::Between;
        match self.next.0 {
            Meaning::Count(which) => {
                let in_envelope = self
                    .frame()
                    .is_some_and(|frame| frame.place == Place::EnvelopeUsage);
                if let Some(count) = self.captured.count() {
                    tally.count(which, in_envelope, count);
                }
            }
            Meaning::Sequence => tally.sequence(self.captured.count()),
            meaning if self.captured.get() != b"null" => mark_present(meaning, tally),
            _ => {}
        }
        end
    }
}

/// A value that is not `null` stands where its mere presence says something.
fn mark_present(meaning: Meaning, tally: &mut Tally) {
    match meaning {
        Meaning::Finish => tally.finish_seen = true,
        Meaning::Error => tally.error_event_seen = true,
        _ => {}
    }
}

fn add(string: StringUse, bytes: u64, tally: &mut Tally) {
    match string {
        StringUse::Text => tally.output(bytes),
        StringUse::Reasoning(name) => tally.reasoning(name, bytes),
        _ => {}
    }
}
