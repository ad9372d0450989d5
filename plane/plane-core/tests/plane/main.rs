//! The data plane from outside: real loopback sockets, scripted backends, and planes linked over libp2p.
//!
//! `bench` starts planes and plays the decider; `client` and `backend` are raw sockets, because most cases
//! need bytes that no HTTP library sends. Waits are generous bounds, never measurements.

mod backend;
mod bench;
mod client;

mod agent_cancel;
mod backend_faults;
mod fields;
mod heads;
mod keep_alive;
mod leaving;
mod limits;
mod link;
mod link_faults;
mod requests;
mod stale;
mod stream_bytes;
mod stream_ends;
