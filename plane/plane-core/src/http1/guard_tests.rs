use super::*;
use proptest::prelude::*;

fn parse(wire: &[u8]) -> Result<Option<RequestHead>, Refused> {
    RequestParser::default().parse(&mut BytesMut::from(wire))
}

fn reason(wire: &[u8]) -> (u16, &'static str) {
    let refused = parse(wire).expect_err("refused");
    (refused.status, refused.reason)
}

fn head_with(fields: &str) -> Vec<u8> {
    format!("POST /v1/x HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

#[test]
fn a_plain_request_passes_whole() {
    let mut buf = BytesMut::from(
        &b"POST /v1/m?beta=true HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET"[..],
    );
    let head = RequestParser::default().parse(&mut buf).unwrap().unwrap();
    assert_eq!(
        (&head.method[..], &head.path[..], &head.query[..]),
        (&b"POST"[..], &b"/v1/m"[..], &b"beta=true"[..])
    );
    assert_eq!(
        (head.framing, head.keep_alive, head.is_http11),
        (Framing::Length(3), true, true)
    );
    assert_eq!(&buf[..], b"abcGET");
}

#[test]
fn two_lengths_or_a_length_beside_an_encoding_are_refused() {
    assert_eq!(
        reason(&head_with(
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"
        )),
        (400, "length_and_encoding")
    );
    assert_eq!(
        reason(&head_with("Content-Length: 3\r\nContent-Length: 4\r\n")),
        (400, "content_length_repeated")
    );
    assert_eq!(
        reason(&head_with("Content-Length: 3\r\nContent-Length: 3\r\n")),
        (400, "content_length_repeated")
    );
}

#[test]
fn lengths_that_are_not_plain_digits_are_refused() {
    for value in [
        "+5",
        "-1",
        "5, 5",
        "0x10",
        "5 5",
        "",
        "99999999999999999999999",
    ] {
        assert_eq!(
            reason(&head_with(&format!("Content-Length: {value}\r\n"))),
            (400, "content_length"),
            "{value:?}"
        );
    }
}

#[test]
fn only_the_chunked_coding_is_known() {
    assert_eq!(
        reason(&head_with("Transfer-Encoding: xchunked\r\n")),
        (501, "transfer_encoding_unknown")
    );
    assert_eq!(
        reason(&head_with("Transfer-Encoding: chunked, chunked\r\n")),
        (400, "transfer_encoding")
    );
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(
        reason(&head_with(twice)),
        (400, "transfer_encoding_repeated")
    );
    assert_eq!(
        reason(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (400, "chunked_in_http10")
    );
    assert_eq!(
        parse(&head_with("Transfer-Encoding: Chunked\r\n"))
            .unwrap()
            .unwrap()
            .framing,
        Framing::Chunked
    );
}

#[test]
fn host_must_stand_once() {
    assert_eq!(reason(b"GET / HTTP/1.1\r\n\r\n"), (400, "host_missing"));
    assert_eq!(
        reason(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        (400, "host_repeated")
    );
    assert!(parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().is_some());
    assert!(
        parse(b"GET / HTTP/1.1\r\nHost: \r\n\r\n")
            .unwrap()
            .is_some()
    );
}

#[test]
fn host_is_a_name_and_a_port_at_most() {
    let with = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let longest = "a".repeat(255);
    for host in ["", "a", "a.b:80", "[::1]:8080", "127.0.0.1", &longest] {
        assert!(parse(&with(host)).unwrap().is_some(), "{host:?}");
    }
    let too_long = "a".repeat(256);
    for host in ["a b", "a\tb", "a/b", "user@a", "a,b", "http://a", &too_long] {
        assert_eq!(reason(&with(host)), (400, "host_malformed"), "{host:?}");
    }
    assert_eq!(
        reason(b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n"),
        (400, "host_malformed")
    );
}

#[test]
fn what_parsers_disagree_on_is_refused() {
    // This one before the head is whole.
    assert_eq!(reason(b"GET / HTTP/1.1\nHost"), (400, "bare_lf"));
    assert_eq!(reason(b"GET / HTTP/1.1\nHost: a\n\n"), (400, "bare_lf"));
    assert_eq!(reason(b"GET / HTTP/1.1\r\nHost: a\n\r\n"), (400, "bare_lf"));
    for fields in [
        "X-A : 1\r\n",
        "X-A: 1\r\n folded\r\n",
        "X-A: a\0b\r\n",
        "X-A: a\rb\r\n",
        "No colon\r\n",
        ": empty\r\n",
    ] {
        assert_eq!(
            reason(&head_with(fields)),
            (400, "malformed_head"),
            "{fields:?}"
        );
    }
    assert_eq!(
        reason(b"GET relative HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "target")
    );
    assert_eq!(reason(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n").0, 505);
    assert_eq!(reason(b"\x16\x03\x01\x02\r\n\r\n"), (400, "malformed_head"));
}

#[test]
fn absolute_form_is_read_as_its_path() {
    let head = parse(b"GET http://h:1/v1/models?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(
        (&head.path[..], &head.query[..]),
        (&b"/v1/models"[..], &b"x=1"[..])
    );
    let bare = parse(b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(&bare.path[..], b"/");
}

#[test]
fn odd_targets_are_refused_rather_than_guessed_at() {
    for target in [
        "x/http://a/b",
        "ftp://h/x",
        "/a#b",
        "http://h/a#b",
        "?x=1",
        "http:/h",
        "**",
        "/caf\u{e9}",
        "/v1?q=\u{fc}",
        "http://h/\u{ff0f}",
    ] {
        let wire = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(reason(wire.as_bytes()), (400, "target"), "{target}");
    }
    let head = parse(b"GET HTTP://h?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!((&head.path[..], &head.query[..]), (&b"/"[..], &b"x=1"[..]));
    let connect = parse(b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(&connect.path[..], b"h:443");
}

#[test]
fn what_connection_lists_is_bounded() {
    let of = |count: usize| head_with(&format!("Connection: {}\r\n", vec!["x"; count].join(",")));
    assert_eq!(
        reason(&of(CONNECTION_TOKENS_MAX + 1)),
        (400, "connection_tokens")
    );
    assert!(parse(&of(CONNECTION_TOKENS_MAX)).unwrap().is_some());
}

#[test]
fn blank_lines_count_the_same_however_they_come() {
    for count in [4, 5] {
        let wire = [b"\r\n".repeat(count), head_with("")].concat();
        let (mut parser, mut buf) = (RequestParser::default(), BytesMut::new());
        let mut verdict = Ok(None);
        for byte in &wire {
            buf.extend_from_slice(&[*byte]);
            verdict = parser.parse(&mut buf);
            if !matches!(verdict, Ok(None)) {
                break;
            }
        }
        assert_eq!(verdict.is_ok(), count == 4);
        assert_eq!(parse(&wire).is_ok(), count == 4);
    }
}

#[test]
fn heads_are_bounded_in_bytes_and_fields() {
    let many = "X: 1\r\n".repeat(FIELDS_MAX);
    assert_eq!(reason(&head_with(&many)), (431, "too_many_fields"));
    assert!(
        parse(&head_with(&"X: 1\r\n".repeat(FIELDS_MAX - 1)))
            .unwrap()
            .is_some()
    );
    assert_eq!(
        reason(&head_with(&format!(
            "X: {}\r\n",
            "a".repeat(HEAD_BYTES_MAX)
        ))),
        (431, "head_too_large")
    );
    assert_eq!(
        reason(&vec![b'a'; HEAD_BYTES_MAX + 1]),
        (431, "head_too_large")
    );
    assert_eq!(reason(&b"\r\n".repeat(5)), (400, "blank_lines"));
}

#[test]
fn over_a_link_there_is_room_for_what_a_router_adds() {
    let mut many = head_with(&"X: 1\r\n".repeat(FIELDS_MAX + 20));
    let parsed = RequestParser::new(GuardLimits::LINK).parse(&mut BytesMut::from(&many[..]));
    assert!(parsed.unwrap().is_some());
    many = head_with(&"X: 1\r\n".repeat(LINK_FIELDS_MAX));
    let refused = RequestParser::new(GuardLimits::LINK).parse(&mut BytesMut::from(&many[..]));
    assert_eq!(refused.unwrap_err().status, 431);
}

#[test]
fn keep_alive_follows_version_and_connection() {
    assert!(
        !parse(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n")
            .unwrap()
            .unwrap()
            .keep_alive
    );
    assert!(
        !parse(b"GET / HTTP/1.0\r\n\r\n")
            .unwrap()
            .unwrap()
            .keep_alive
    );
    assert!(
        !parse(b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n")
            .unwrap()
            .unwrap()
            .keep_alive
    );
    assert!(
        parse(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .unwrap()
            .unwrap()
            .keep_alive
    );
}

#[test]
fn names_listed_by_connection_are_hop_by_hop() {
    let head = parse(&head_with(
        "Connection: X-Foo, keep-alive\r\nX-Foo: 1\r\nTE: trailers\r\nX-Bar: 1\r\n",
    ))
    .unwrap()
    .unwrap();
    let hop = |name: &str| head.fields.is_hop_by_hop(name.as_bytes());
    assert!(
        hop("x-foo")
            && hop("TE")
            && hop("Keep-Alive")
            && hop("Upgrade")
            && hop("Proxy-Authorization")
            && hop("proxy-anything")
            && hop("HTTP2-Settings")
    );
    assert!(!hop("x-bar") && !hop("content-type") && !hop("user-agent"));
    assert!(!hop("proxy") && !hop("host") && !hop("x-proxy-a"));
}

proptest! {
    #[test]
    fn any_splitting_of_a_head_is_judged_alike(
        noise in "[ -~]{0,12}",
        line in prop::sample::select(vec!["\r\n", "\n", "\r"]),
        cut in any::<prop::sample::Index>(),
    ) {
        let wire = format!("POST /p HTTP/1.1\r\nHost: a\r\n{noise}{line}Content-Length: 2\r\n\r\nok").into_bytes();
        let whole = parse(&wire).map(|h| h.map(|h| h.framing));
        let cut = cut.index(wire.len());
        let (mut parser, mut buf) = (RequestParser::default(), BytesMut::from(&wire[..cut]));
        let split = match parser.parse(&mut buf) {
            Ok(None) => { buf.extend_from_slice(&wire[cut..]); parser.parse(&mut buf) }
            other => other,
        };
        prop_assert_eq!(split.map(|h| h.map(|h| h.framing)), whole);
    }

    #[test]
    fn garbage_never_panics(wire in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&wire);
    }
}
