//! What does the engine without inference answer? All bytes are laid out once; only a chunk's write time is filled in.

use memchr::memmem::Finder;

use crate::clock::{STAMP_DIGITS, STAMP_MARK, now_ns};

/// Begins the words that say what is wanted; a semicolon ends them.
pub const WANTED_MARK: &[u8] = b"bench: ";
/// Most bytes of those words.
const WANTED_BYTES_MAX: usize = 256;

/// What one request asked for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub chunks: usize,
    pub interval_us: u64,
    pub chunk_bytes: usize,
    pub body_bytes: usize,
    pub delay_us: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            chunks: 50,
            interval_us: 20_000,
            chunk_bytes: 200,
            body_bytes: 1024,
            delay_us: 0,
        }
    }
}

impl Wanted {
    /// What a chat's body asks for; the rest stays as it is by default.
    pub fn of(body: &[u8], mark: &Finder<'_>) -> Self {
        let mut wanted = Self::default();
        let Some(at) = mark.find(body) else {
            return wanted;
        };
        let words = &body[at + WANTED_MARK.len()..];
        let words = &words[..words.len().min(WANTED_BYTES_MAX)];
        let words = words.split(|byte| *byte == b';').next().unwrap_or_default();
        for pair in std::str::from_utf8(words).unwrap_or_default().split(' ') {
            if let Some((name, value)) = pair.split_once('=') {
                wanted.set(name, value);
            }
        }
        wanted
    }

    /// Takes over one value; what it does not know or cannot read, it leaves.
    fn set(&mut self, name: &str, value: &str) {
        let Ok(number) = value.parse::<u32>() else {
            return;
        };
        match name {
            "chunks" => self.chunks = number as usize,
            "interval_us" => self.interval_us = u64::from(number),
            "chunk_bytes" => self.chunk_bytes = (number as usize).min(1 << 20),
            "delay_us" => self.delay_us = u64::from(number),
            "body_bytes" => self.body_bytes = (number as usize).min(1 << 26),
            _ => {}
        }
    }
}

/// Opens a streamed answer.
pub fn stream_head(keep: bool) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
         Transfer-Encoding: chunked\r\n{}\r\n",
        closing(keep)
    )
    .into_bytes()
}

/// Closes it: the usage, the end mark, and the end of the chunked body.
pub const EVENT_END: &[u8] = b"94\r\ndata: {\"id\":\"bench\",\"object\":\"chat.completion.chunk\",\"created\":0,\
    \"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":8,\"total_tokens\":16}}\n\n\r\n\
    e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// One event of a stream inside its chunk frame, with a place for its write time.
pub struct StampedEvent {
    framed: Vec<u8>,
    stamp_at: usize,
}

impl StampedEvent {
    /// An event of `size_bytes`, or of what its JSON takes where that is more.
    pub fn new(model: &str, size_bytes: usize) -> Self {
        let start = format!(
            "data: {{\"id\":\"bench\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"{model}\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\""
        );
        let end = "\"},\"finish_reason\":null}]}\n\n";
        let bare_bytes = start.len() + STAMP_MARK.len() + STAMP_DIGITS + end.len();
        let fill_bytes = size_bytes.saturating_sub(bare_bytes);
        let mut framed = format!("{:x}\r\n{start}", bare_bytes + fill_bytes).into_bytes();
        framed.extend_from_slice(STAMP_MARK);
        let stamp_at = framed.len();
        framed.resize(stamp_at + STAMP_DIGITS, b'0');
        framed.resize(framed.len() + fill_bytes, b'x');
        framed.extend_from_slice(end.as_bytes());
        framed.extend_from_slice(b"\r\n");
        Self { framed, stamp_at }
    }

    /// Appends the event to `out`, with the time as it is now.
    pub fn write(&self, out: &mut Vec<u8>) {
        let at = out.len() + self.stamp_at;
        out.extend_from_slice(&self.framed);
        let mut digits = itoa::Buffer::new();
        let text = digits.format(now_ns()).as_bytes();
        // Nanoseconds since 1970 have 19 digits from 2001 to 2286.
        if text.len() == STAMP_DIGITS {
            out[at..at + STAMP_DIGITS].copy_from_slice(text);
        }
    }
}

/// A whole answer, head and body, its body `body_bytes` long or what its JSON takes where that is more.
pub fn unary_answer(model: &str, body_bytes: usize, keep: bool) -> Vec<u8> {
    let start = format!(
        "{{\"id\":\"bench\",\"object\":\"chat.completion\",\"created\":0,\"model\":\"{model}\",\"choices\":[{{\
         \"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\""
    );
    let end = "\"},\"finish_reason\":\"stop\"}],\
               \"usage\":{\"prompt_tokens\":8,\"completion_tokens\":8,\"total_tokens\":16}}";
    let fill_bytes = body_bytes.saturating_sub(start.len() + end.len());
    whole(
        "200 OK",
        format!("{start}{}{end}", "x".repeat(fill_bytes)).as_bytes(),
        keep,
    )
}

/// A JSON answer with its head.
pub fn whole(status: &str, body: &[u8], keep: bool) -> Vec<u8> {
    let (size, closing) = (body.len(), closing(keep));
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n{closing}\r\n"
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// The header line that says the connection ends with this answer, where it does.
fn closing(keep: bool) -> &'static str {
    if keep { "" } else { "Connection: close\r\n" }
}
