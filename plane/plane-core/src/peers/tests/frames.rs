//! The bytes on the wire, against the recorded session with an original router.
//! Source: vectors/wire-multistream-yamux.json.

use std::io::ErrorKind;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    super::{
        Peers, PeersConfig, new_identity_bytes,
        yamux::{MuxConfig, Side},
    },
    bytes,
    pipe::{frame, run},
};

const MULTISTREAM_HEADER: &str = "132f6d756c746973747265616d2f312e302e300a";
const PROPOSE_TLS: &str = "0b2f746c732f312e302e300a";
const NOT_AVAILABLE: &str = "036e610a";
const NOISE: &str = "072f6e6f6973650a";

#[tokio::test]
async fn a_new_stream_carries_syn_with_its_first_bytes_and_a_drop_sends_rst() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let left = run(near, &MuxConfig::default(), Side::Dialer);
    let mut stream = left.open().await;
    stream.write_all(b"hi").await.unwrap();
    let (syn, payload) = frame(&mut raw).await;
    assert_eq!(syn.as_slice(), bytes("000000010000000100000002"));
    assert_eq!(payload, b"hi");
    drop(stream);
    let (rst, _) = frame(&mut raw).await;
    assert_eq!(rst.as_slice(), bytes("000000080000000100000000"));
}

#[tokio::test]
async fn a_shutdown_sends_fin_and_the_drop_after_it_nothing() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let left = run(near, &MuxConfig::default(), Side::Listener);
    let mut first = left.open().await;
    first.write_all(b"hi").await.unwrap();
    first.shutdown().await.unwrap();
    assert_eq!(
        frame(&mut raw).await.0.as_slice(),
        bytes("000000010000000200000002")
    );
    assert_eq!(
        frame(&mut raw).await.0.as_slice(),
        bytes("000000040000000200000000")
    );
    drop(first);
    let mut second = left.open().await;
    second.write_all(b"ho").await.unwrap();
    assert_eq!(
        frame(&mut raw).await.0.as_slice(),
        bytes("000000010000000400000002")
    );
}

#[tokio::test]
async fn the_recorded_answer_of_an_original_router_is_read_to_its_fin() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let left = run(near, &MuxConfig::default(), Side::Dialer);
    let mut stream = left.open().await;
    stream.write_all(b"GET").await.unwrap();
    for part in [
        "000100020000000100000000",
        "000000000000000100000014",
        MULTISTREAM_HEADER,
        "00000000000000010000000b",
        "0a2f687474702f312e310a",
        "000100040000000100000000",
    ] {
        raw.write_all(&bytes(part)).await.unwrap();
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"\x13/multistream/1.0.0\n\n/http/1.1\n");
}

#[tokio::test]
async fn the_recorded_stream_that_an_original_router_resets_is_an_error() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let mut left = run(near, &MuxConfig::default(), Side::Dialer);
    for part in [
        "000200010000000000000000",
        "000100010000000200000000",
        "000000000000000200000024",
        "132f6d756c746973747265616d2f312e302e300a0f2f697066732f69642f312e302e300a",
        "000100080000000200000000",
    ] {
        raw.write_all(&bytes(part)).await.unwrap();
    }
    let mut stream = left.accept().await;
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(got, b"\x13/multistream/1.0.0\n\x0f/ipfs/id/1.0.0\n");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_ping_of_an_original_router_is_answered_with_its_value() {
    let (near, mut raw) = tokio::io::duplex(1 << 16);
    let _left = run(near, &MuxConfig::default(), Side::Dialer);
    raw.write_all(&bytes("00020001000000000000beef"))
        .await
        .unwrap();
    let mut header = [0; 12];
    while header.as_slice() != bytes("00020002000000000000beef") {
        raw.read_exact(&mut header).await.unwrap();
    }
}

#[tokio::test]
async fn an_original_agent_that_proposes_tls_falls_back_to_noise() {
    let (peers, _inbound, _events) = Peers::start(PeersConfig::new(new_identity_bytes())).unwrap();
    let bound = peers
        .listen("/ip4/127.0.0.1/tcp/0".parse().unwrap())
        .await
        .unwrap();
    let port = bound[0]
        .to_string()
        .rsplit('/')
        .next()
        .unwrap()
        .parse::<u16>()
        .unwrap();
    let mut agent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    agent
        .write_all(&bytes(&[MULTISTREAM_HEADER, PROPOSE_TLS].concat()))
        .await
        .unwrap();
    let expected = bytes(&[MULTISTREAM_HEADER, NOT_AVAILABLE].concat());
    let mut answer = vec![0; expected.len()];
    agent.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, expected);
    agent.write_all(&bytes(NOISE)).await.unwrap();
    let mut agreed = vec![0; NOISE.len() / 2];
    agent.read_exact(&mut agreed).await.unwrap();
    assert_eq!(agreed, bytes(NOISE));
}
