//! Header fields of one message: one shared block of bytes and where each name and value lies in it.

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn of(block: &[u8], part: &[u8]) -> Span {
        // Heads are bounded far below 4 GiB, so the offsets fit.
        let start = part.as_ptr() as usize - block.as_ptr() as usize;
        Span {
            start: start as u32,
            len: part.len() as u32,
        }
    }

    fn of_value(block: &[u8], value: &[u8]) -> Span {
        if value.is_empty() {
            Span { start: 0, len: 0 }
        } else {
            Span::of(block, value)
        }
    }

    fn slice(self, block: &[u8]) -> &[u8] {
        &block[self.start as usize..(self.start + self.len) as usize]
    }
}

/// The header fields of a head in the order they came, names as they were spelled.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    block: Bytes,
    spans: Vec<(Span, Span)>,
}

impl Fields {
    /// Fields that httparse found in `block`; every slice must lie inside it.
    pub(super) fn new(block: Bytes, parsed: &[httparse::Header<'_>]) -> Fields {
        let spans = parsed
            .iter()
            .map(|h| {
                (
                    Span::of(&block, h.name.as_bytes()),
                    Span::of_value(&block, h.value),
                )
            })
            .collect();
        Fields { block, spans }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans
            .iter()
            .map(|(n, v)| (n.slice(&self.block), v.slice(&self.block)))
    }

    /// First value of that name, whatever its case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, v)| v)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, v)| v)
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether a `Connection` field lists that token.
    pub fn connection_has(&self, token: &str) -> bool {
        self.all("connection")
            .any(|v| tokens(v).any(|t| t.eq_ignore_ascii_case(token.as_bytes())))
    }

    /// How many tokens the `Connection` fields list in all.
    pub fn connection_tokens(&self) -> usize {
        self.all("connection").map(|v| tokens(v).count()).sum()
    }

    /// Whether this name must stay on its own hop: the fixed list, and what `Connection` names.
    ///
    /// Source: RFC 9110 §7.6.1; http-api.md §15 item 10.
    pub fn is_hop_by_hop(&self, name: &[u8]) -> bool {
        is_hop_by_hop(name)
            || self
                .all("connection")
                .any(|v| tokens(v).any(|t| t.eq_ignore_ascii_case(name)))
    }
}

/// The comma-separated tokens of a field value, blanks trimmed.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|t| !t.is_empty())
}

const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether whoever writes the message sets this field: what frames the body, and what names this
/// hop. A field of that name from anywhere else would make two that disagree.
pub fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || is_hop_by_hop(name)
}

/// Whether somebody takes this name for one that frames the message or names a hop: by itself, or as
/// gateways read it that turn `-` into `_` and cannot tell the two apart.
pub fn names_framing(name: &[u8]) -> bool {
    is_framing(name) || is_disguised(name)
}

/// Whether this name becomes one of [`is_framing`] where `_` is read as `-`.
pub fn is_disguised(name: &[u8]) -> bool {
    const NAME_BYTES_MAX: usize = 32;
    if memchr::memchr(b'_', name).is_none() {
        return false;
    }
    // Longer ones can only be meant by their beginning.
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    let mut dashed = [0; NAME_BYTES_MAX];
    for (to, from) in dashed.iter_mut().zip(name) {
        *to = if *from == b'_' { b'-' } else { *from };
    }
    is_framing(&dashed[..name.len()])
}

/// Whatever begins so is between the two ends of one hop.
const HOP_PREFIX: &[u8] = b"proxy-";

/// Whether this name is hop-by-hop by the fixed list alone.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    // Most names are told apart by their first letter, before any comparison.
    matches!(
        name.first(),
        Some(b'c' | b'C' | b'h' | b'H' | b'k' | b'K' | b'p' | b'P' | b't' | b'T' | b'u' | b'U')
    ) && (name
        .get(..HOP_PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(HOP_PREFIX))
        || HOP_BY_HOP
            .iter()
            .any(|h| name.eq_ignore_ascii_case(h.as_bytes())))
}
