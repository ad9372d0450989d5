//! The client side of the plane: to agents over their links and to HTTP servers over TCP.
//!
//! Invariant: a connection on which a request is under way is dropped, never shut down: dropping
//! resets, and that is how the other side learns that nobody waits any more (wire.md §8.6). Only a
//! connection whose answer was read to its end goes back into a pool.

mod body;
mod conn;
mod io;
mod lanes;
mod pool;

pub use body::{BodyBroken, UpBody};
pub use conn::{Outgoing, UpConn};
pub use io::UpstreamIo;
pub use lanes::{Answer, HttpUpstream, Lanes, LinkClosed, Resend, Trail};
pub use pool::{Pool, PoolLimits};
