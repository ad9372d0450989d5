//! The data plane from outside: real loopback sockets, scripted backends, and planes linked over libp2p.
//!
//! `bench` and `linked` start planes and play the decider; `client` and `backend` are raw sockets, because most cases
//! need bytes that no HTTP library sends. Waits are generous bounds, never measurements.

mod backend;
mod bench;
mod client;
mod linked;

mod agent_cancel;
mod answers;
mod backend_answers;
mod backend_faults;
mod fields;
mod heads;
mod keep_alive;
mod leaving;
mod limits;
mod link;
mod link_faults;
mod link_load;
mod link_stale;
mod replies;
mod requests;
mod stale;
mod stream_bytes;
mod stream_ends;
mod whole_json;
