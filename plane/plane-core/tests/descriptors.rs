//! A plane that runs out of file descriptors says so, and goes on when there are some again.
//!
//! On its own, because it takes all descriptors of its process.

use plane_core::{
    events::Event,
    exchange::{Command, Respond},
    ingress::DoorSpec,
    peers::{PeersConfig, new_identity_bytes},
    plane::Plane,
    upstream::PoolLimits,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn event(plane: &Plane, wanted: impl Fn(&Event) -> bool) -> Event {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(event) = plane.context().events.drain().into_iter().find(&wanted) {
            return event;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within {PATIENCE:?}");
}

#[test]
fn without_descriptors_nothing_is_accepted_and_with_them_everything_is() {
    let all = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(128),
        maximum: all.maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let identity = PeersConfig::new(new_identity_bytes());
    let links = DoorSpec::named("links");
    let plane = Plane::start(identity, links, PoolLimits::default()).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let address = plane.listen_http(any, DoorSpec::named("api")).unwrap();

    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // One for the client, none for whoever accepts it.
    taken.pop();
    let mut client = TcpStream::connect(address).unwrap();
    let Event::Rejected { status, reason, .. } =
        event(&plane, |event| matches!(event, Event::Rejected { .. }))
    else {
        unreachable!()
    };
    assert_eq!((status, reason), (0, "out_of_file_descriptors"));
    drop(taken);

    let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let Event::Arrived(arrival) = event(&plane, |event| matches!(event, Event::Arrived(_))) else {
        unreachable!()
    };
    arrival.mailbox.post(Command::Respond(Respond {
        status: 200,
        fields: Vec::new(),
        body: "here".into(),
    }));
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("here"), "{answer}");
}
