use super::*;
use proptest::prelude::*;

fn decode_all(framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, Vec<u8>), BodyError> {
    let (mut decoder, mut buf, mut body) = (BodyDecoder::new(framing), BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Decoded::Data(data) = decoder.decode(&mut buf)? {
            body.extend_from_slice(&data);
        }
    }
    Ok((body, decoder.is_done(), buf.to_vec()))
}

#[test]
fn a_length_delimited_body_leaves_the_next_request_alone() {
    let got = decode_all(Framing::Length(5), &[b"hel", b"loGET /"]).unwrap();
    assert_eq!(got, (b"hello".to_vec(), true, b"GET /".to_vec()));
}

#[test]
fn extensions_and_trailers_are_dropped() {
    let got = decode_all(
        Framing::Chunked,
        &[b"4;a=b\r\nwxyz\r\n0\r\nX-T: 1\r\n\r\nrest"],
    )
    .unwrap();
    assert_eq!(got, (b"wxyz".to_vec(), true, b"rest".to_vec()));
}

#[test]
fn malformed_chunks_are_refused() {
    for wire in [
        &b"FFFFFFFFFFFFFFFF\r\n"[..],
        b"\r\n",
        b"-1\r\n",
        b"+5\r\n",
        b"0x5\r\n",
        b"5\nhello",
        b"3\r\nabcd\r\n",
        b" 5\r\n",
        b"5\r\r\nhello",
        b"5;a\rb\r\nhello",
        b"5 a\r\nhello",
    ] {
        let got = decode_all(Framing::Chunked, &[wire]);
        assert_eq!(
            got,
            Err(BodyError::BadChunk),
            "{:?}",
            String::from_utf8_lossy(wire)
        );
    }
}

#[test]
fn what_cannot_become_a_chunk_or_a_trailer_is_refused_before_its_line_ends() {
    for (wire, error) in [
        (&b"hello"[..], BodyError::BadChunk),
        (b"5hello", BodyError::BadChunk),
        (b"5\rx", BodyError::BadChunk),
        (b"\r", BodyError::BadChunk),
        (b"0000000000000005", BodyError::BadChunk),
        (b"5\r\nhellox", BodyError::BadChunk),
        (b"{\"a\":1}", BodyError::BadChunk),
        (b"0\r\n\rx", BodyError::BadTrailer),
        (b"0\r\n ", BodyError::BadTrailer),
        (b"0\r\nX-A\r", BodyError::BadTrailer),
        (b"0\r\nX A", BodyError::BadTrailer),
        (b"0\r\nX-A: \0", BodyError::BadTrailer),
        (b"0\r\nContent-Length:", BodyError::BadTrailer),
    ] {
        let got = decode_all(Framing::Chunked, &[wire]);
        assert_eq!(got, Err(error), "{:?}", String::from_utf8_lossy(wire));
    }
    for wire in [
        &b""[..],
        b"5",
        b"5 ",
        b"5;a=b",
        b"5\r",
        b"5\r\nhello\r",
        b"0\r\n\r",
        b"0\r\nX",
        b"0\r\nX-A:",
        b"0\r\nX-A: a\r",
    ] {
        let (_, is_done, _) = decode_all(Framing::Chunked, &[wire]).unwrap();
        assert!(!is_done, "{wire:?}");
    }
}

#[test]
fn endless_size_lines_and_trailers_are_cut() {
    let long = vec![b'1'; SIZE_LINE_BYTES_MAX + 1];
    assert_eq!(
        decode_all(Framing::Chunked, &[&long]),
        Err(BodyError::BadChunk)
    );
    let mut trailers = b"0\r\n".to_vec();
    trailers.extend(b"X-A: 1\r\n".repeat(TRAILER_BYTES_MAX / 8 + 1));
    assert_eq!(
        decode_all(Framing::Chunked, &[&trailers]),
        Err(BodyError::TrailersTooLong)
    );
}

#[test]
fn only_field_lines_pass_as_trailers() {
    for fine in [
        "X-Sum: 1",
        "x:",
        "x:\ta b\t",
        "Server-Timing: a, \u{e4}",
        "X_Sum: 1",
    ] {
        let wire = format!("0\r\n{fine}\r\n\r\nNEXT");
        let (_, is_done, rest) = decode_all(Framing::Chunked, &[wire.as_bytes()]).unwrap();
        assert!(is_done && rest == b"NEXT", "{fine:?}");
    }
    for bad in [
        "no colon",
        ": no name",
        "X : blank before",
        " X: folded",
        "\tX: folded",
        "X: a\rGET / HTTP/1.1",
        "\r",
        "X: \0",
        "X: \u{7f}",
        "X\u{e4}: 1",
        "Content-Length: 1",
        "content_length: 1",
        "Transfer-Encoding: chunked",
        "Transfer_Encoding: chunked",
        "Host: other",
        "Connection: close",
        "Trailer: x",
        "Proxy_Authorization: x",
    ] {
        let wire = format!("0\r\nX-A: 1\r\n{bad}\r\n\r\n");
        let got = decode_all(Framing::Chunked, &[wire.as_bytes()]);
        assert_eq!(got, Err(BodyError::BadTrailer), "{bad:?}");
    }
}

#[test]
fn trailers_of_just_their_bound_are_taken_and_one_byte_more_is_not() {
    for (extra, is_fine) in [(0, true), (1, false), (2, false)] {
        let mut wire = b"0\r\n".to_vec();
        // The bound counts the lines with their ends; the empty last line has two bytes itself.
        wire.extend(b"X: ");
        wire.extend(vec![b'x'; TRAILER_BYTES_MAX - 6 + extra]);
        wire.extend(b"\r\n\r\n");
        let got = decode_all(Framing::Chunked, &[&wire]);
        assert_eq!(got.is_ok_and(|(_, is_done, _)| is_done), is_fine, "{extra}");
    }
}

proptest! {
    #[test]
    fn any_splitting_of_a_chunked_body_gives_the_same_bytes(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend(format!("{:x}\r\n", chunk.len()).bytes());
            wire.extend(chunk);
            wire.extend(b"\r\n");
        }
        wire.extend(b"0\r\n\r\nNEXT");
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(wire.len())).collect();
        at.extend([0, wire.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|w| &wire[w[0]..w[1]]).collect();
        let (body, done, rest) = decode_all(Framing::Chunked, &pieces).unwrap();
        prop_assert_eq!(body, chunks.concat());
        prop_assert!(done);
        prop_assert_eq!(rest, b"NEXT".to_vec());
    }

    #[test]
    fn garbage_never_panics_and_never_hands_out_more_than_came(wire in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((body, _, rest)) = decode_all(Framing::Chunked, &[&wire]) {
            prop_assert!(body.len() + rest.len() <= wire.len());
        }
    }
}
