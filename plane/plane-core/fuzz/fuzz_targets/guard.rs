//! However a request is cut, the guard and the body decoder judge it alike; what passes the guard is read by
//! a plain reference in the same way; and no byte is handed out that did not come, or twice. The first byte
//! of the input sets the cuts.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use plane_core::http1::{BodyDecoder, Decoded, Framing, GuardLimits, RequestHead, RequestParser};

/// Small enough for the fuzzer to reach.
const LIMITS: GuardLimits = GuardLimits {
    head_bytes_max: 512,
    fields_max: 16,
};

/// All that was made of one connection's bytes.
#[derive(Debug, PartialEq)]
struct Read {
    head: Result<Option<Vec<u8>>, (u16, &'static str)>,
    body: Vec<u8>,
    /// The body has come to its end, is malformed, or goes on.
    end: &'static str,
    rest: Vec<u8>,
}

fuzz_target!(|input: &[u8]| {
    let Some((seed, wire)) = input.split_first() else {
        return;
    };
    let whole = read(std::iter::once(wire));
    assert_eq!(read(wire.chunks(1)), whole);
    assert_eq!(read(pieces(wire, *seed)), whole);
});

/// A linear congruence: pieces of 1 to 16 bytes, the same for the same input.
fn pieces(wire: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut state) = (wire, u32::from(seed));
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = ((state >> 28) as usize + 1).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        (size > 0).then_some(piece)
    })
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let (mut parser, mut buf) = (RequestParser::new(LIMITS), BytesMut::new());
    let mut decoder: Option<BodyDecoder> = None;
    let mut read = Read {
        head: Ok(None),
        body: Vec::new(),
        end: "goes on",
        rest: Vec::new(),
    };
    let (mut came, mut before_body) = (0, 0);
    for piece in pieces {
        came += piece.len();
        buf.extend_from_slice(piece);
        if read.end != "goes on" || read.head.is_err() {
            continue;
        }
        if decoder.is_none() {
            match parser.parse(&mut buf) {
                Ok(None) => continue,
                Err(refused) => {
                    read.head = Err((refused.status, refused.reason));
                    continue;
                }
                Ok(Some(head)) => {
                    before_body = came - buf.len();
                    check(&head);
                    decoder = Some(BodyDecoder::new(head.framing));
                    read.head = Ok(Some(format!("{head:?}").into_bytes()));
                }
            }
        }
        read.end = decode(
            decoder.as_mut().expect("made above"),
            &mut buf,
            &mut read.body,
        );
        assert!(
            before_body + read.body.len() + buf.len() <= came,
            "more came out than went in"
        );
    }
    // How much is left of what is refused depends on when it was.
    if read.end == "ended" {
        read.rest = buf.to_vec();
    }
    read
}

fn decode(decoder: &mut BodyDecoder, buf: &mut BytesMut, body: &mut Vec<u8>) -> &'static str {
    loop {
        match decoder.decode(buf) {
            Ok(Decoded::Data(data)) => {
                assert!(!data.is_empty());
                body.extend_from_slice(&data);
            }
            Ok(Decoded::NeedMore) => return "goes on",
            Ok(Decoded::End) => return "ended",
            Err(_) => return "malformed",
        }
    }
}

/// The head as a reader sees it who splits at CRLF and at the first colon, and knows nothing else.
fn check(head: &RequestHead) {
    let fields: Vec<(&[u8], &[u8])> = head.fields.iter().collect();
    let all = |name: &str| -> Vec<&[u8]> {
        let named = fields
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| *value).collect()
    };
    for (name, value) in &fields {
        assert!(!name.is_empty() && name.iter().all(|b| b.is_ascii_graphic() && *b != b':'));
        assert!(!value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
    }
    let lengths = all("content-length");
    match (lengths.as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => assert_eq!(head.framing, Framing::Length(0)),
        ([length], []) => {
            assert!(length.iter().all(u8::is_ascii_digit));
            let length = std::str::from_utf8(length).unwrap().parse().unwrap();
            assert_eq!(head.framing, Framing::Length(length));
        }
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && head.is_http11);
            assert_eq!(head.framing, Framing::Chunked);
        }
        both => panic!("two framings passed: {both:?}"),
    }
    assert!(all("host").len() == 1 || !head.is_http11 && all("host").is_empty());
    assert!(
        head.path.starts_with(b"/") || &head.path[..] == b"*" || &head.method[..] == b"CONNECT"
    );
    assert!(
        !head
            .path
            .iter()
            .chain(head.query.iter())
            .any(|b| *b <= b' ' || *b == 0x7f)
    );
}
