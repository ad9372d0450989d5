//! The server side of the plane: HTTP/1.1 from clients over TCP and from peers over their link.
//!
//! One task per connection. A request is read whole before anybody is asked about it; while it is
//! answered the connection is watched, so that a client that leaves is noticed at once.

mod accept;
mod door;
mod io;
mod read;
mod reply;
mod seats;
mod serve;
mod watch;
mod write;

pub use accept::{accept_peers, accept_tcp};
pub use door::{Door, DoorSpec};
