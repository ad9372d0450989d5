//! Credit: when it is given, how much, and out of what.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{
    super::{
        PeersConfig, new_identity_bytes,
        yamux::{MuxConfig, Side, WINDOW_BYTES},
    },
    pipe::{End, TestStream, frame, run, small},
};

use crate::upstream::PoolLimits;

const WIDE_BYTES: usize = 2 << 20;

/// A listener whose peer opens streams by hand.
struct Rig {
    end: End,
    raw: DuplexStream,
    next: u32,
}

impl Rig {
    fn new(config: &MuxConfig) -> Rig {
        let (near, raw) = tokio::io::duplex(8 << 20);
        Rig {
            end: run(near, config, Side::Listener),
            raw,
            next: 1,
        }
    }

    async fn send(&mut self, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = vec![0, 0, 0, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(payload);
        self.raw.write_all(&bytes).await.unwrap();
    }

    async fn open(&mut self) -> (u32, TestStream) {
        let id = self.next;
        self.next += 2;
        self.send(1, id, b"").await;
        (id, self.end.accept().await)
    }

    /// What the next frame says, which has to be a window update: its flags, stream and credit.
    async fn credit(&mut self) -> (u8, u32, usize) {
        let (header, _) = frame(&mut self.raw).await;
        assert_eq!(header[1], 1, "{header:?}");
        let stream = u32::from_be_bytes(header[4..8].try_into().unwrap());
        let credit = u32::from_be_bytes(header[8..].try_into().unwrap());
        (header[3], stream, credit as usize)
    }
}

async fn read(stream: &mut TestStream, bytes: usize) {
    stream.read_exact(&mut vec![0; bytes]).await.unwrap();
}

#[tokio::test]
async fn half_a_window_is_credited_at_a_time() {
    let mut rig = Rig::new(&small());
    let (id, mut stream) = rig.open().await;
    for flags in [2, 0, 0] {
        rig.send(0, id, &vec![7; WINDOW_BYTES / 2]).await;
        read(&mut stream, WINDOW_BYTES / 2).await;
        assert_eq!(rig.credit().await, (flags, id, WINDOW_BYTES / 2));
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gives_credit_from_time_to_time_all_the_same() {
    let mut rig = Rig::new(&small());
    let (id, mut stream) = rig.open().await;
    rig.send(0, id, &vec![7; WINDOW_BYTES / 2]).await;
    for flags in [2, 0] {
        read(&mut stream, 8 << 10).await;
        tokio::time::advance(Duration::from_secs(10)).await;
        read(&mut stream, 8 << 10).await;
        assert_eq!(rig.credit().await, (flags, id, 16 << 10));
    }
}

#[tokio::test]
async fn who_takes_up_a_stream_widens_its_window_by_a_fair_part_of_the_extra() {
    let extra = 16 << 20;
    let config = MuxConfig {
        inbound_window_bytes: WIDE_BYTES,
        window_extra_bytes: extra,
        ..small()
    };
    let mut rig = Rig::new(&config);
    let (mut left, mut streams) = (extra, Vec::new());
    for n in 0..30 {
        let (id, stream) = rig.open().await;
        let wide = (WIDE_BYTES - WINDOW_BYTES).min(left / 8);
        assert_eq!(rig.credit().await, (2, id, wide), "stream {n}");
        left -= wide;
        streams.push(stream);
    }
    // What a stream had is there for the next one.
    drop(streams.remove(0));
    frame(&mut rig.raw).await;
    left += WIDE_BYTES - WINDOW_BYTES;
    let (id, _stream) = rig.open().await;
    assert_eq!(rig.credit().await, (2, id, left / 8));
}

// Streams that are kept between requests keep their windows, and the next long prompt may come on any of them.
#[tokio::test]
async fn as_many_streams_as_are_kept_have_the_whole_window_when_it_is_widened() {
    let mut config = PeersConfig::new(new_identity_bytes());
    config.widen(WIDE_BYTES);
    let mut rig = Rig::new(&config.mux());
    let mut kept = Vec::new();
    for _ in 0..PoolLimits::default().idle_max {
        let (id, stream) = rig.open().await;
        assert_eq!(rig.credit().await, (2, id, WIDE_BYTES - WINDOW_BYTES));
        kept.push(stream);
    }
}

#[tokio::test]
async fn a_stream_that_has_said_all_is_given_no_credit() {
    let config = MuxConfig {
        inbound_window_bytes: WIDE_BYTES,
        ..small()
    };
    let mut rig = Rig::new(&MuxConfig {
        window_extra_bytes: 64 << 20,
        ..config
    });
    rig.send(1 | 4, 1, b"request").await;
    let mut stream = rig.end.accept().await;
    stream.write_all(b"answer").await.unwrap();
    let (header, payload) = frame(&mut rig.raw).await;
    assert_eq!((header[1], &payload[..]), (0, &b"answer"[..]));
}

impl Rig {
    /// Answers the ping that came with the first credit after this round trip.
    async fn pong(&mut self, after: Duration) {
        let mut header = [0; 12];
        self.raw.read_exact(&mut header).await.unwrap();
        assert_eq!(header[..4], [0, 2, 0, 1]);
        tokio::time::advance(after).await;
        header[3] = 2;
        self.raw.write_all(&header).await.unwrap();
        // One that is opened behind it has come when it has.
        self.open().await;
        frame(&mut self.raw).await;
    }
}

const HALF_BYTES: usize = WINDOW_BYTES / 2;
const ROUND_TRIP: Duration = Duration::from_millis(50);

async fn measured(config: &MuxConfig) -> (Rig, u32, TestStream) {
    let mut rig = Rig::new(config);
    let (id, mut stream) = rig.open().await;
    rig.send(0, id, &vec![7; HALF_BYTES]).await;
    read(&mut stream, HALF_BYTES).await;
    assert_eq!(rig.credit().await, (2, id, HALF_BYTES));
    rig.pong(ROUND_TRIP).await;
    (rig, id, stream)
}

fn growing() -> MuxConfig {
    MuxConfig {
        window_extra_bytes: 64 << 20,
        ..small()
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_lasts_for_four_round_trips_does_not_grow() {
    let (mut rig, id, mut stream) = measured(&growing()).await;
    for _ in 0..4 {
        tokio::time::advance(2 * ROUND_TRIP).await;
        rig.send(0, id, &vec![7; HALF_BYTES]).await;
        read(&mut stream, HALF_BYTES).await;
        assert_eq!(rig.credit().await, (0, id, HALF_BYTES));
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_lasts_for_less_doubles_up_to_two_mebibytes() {
    let (mut rig, id, mut stream) = measured(&growing()).await;
    let mut window = WINDOW_BYTES;
    for _ in 0..5 {
        tokio::time::advance(ROUND_TRIP / 2).await;
        rig.send(0, id, &vec![7; window / 2]).await;
        read(&mut stream, window / 2).await;
        let grown = window.min(WIDE_BYTES - window);
        assert_eq!(rig.credit().await, (0, id, window / 2 + grown));
        window += grown;
    }
    assert_eq!(window, WIDE_BYTES);
}

#[tokio::test(start_paused = true)]
async fn no_window_grows_beyond_what_all_may_have() {
    let config = MuxConfig {
        window_extra_bytes: 1000,
        ..small()
    };
    let (mut rig, id, mut stream) = measured(&config).await;
    let mut credit = 0;
    for half in [HALF_BYTES, HALF_BYTES + 500, HALF_BYTES + 500] {
        tokio::time::advance(ROUND_TRIP / 2).await;
        rig.send(0, id, &vec![7; half]).await;
        read(&mut stream, half).await;
        credit += rig.credit().await.2;
    }
    assert_eq!(credit, 3 * HALF_BYTES + 1000 + 1000);
}
