//! The data plane of Hivenet Router: moves requests and answers between clients, agents and engines.
//!
//! It decides nothing. Limits, texts and choices come in as values and commands; what happens goes
//! out as events. `plane` is the way in; a request's way is `ingress`, `exchange`, `upstream`.

mod bell;
pub mod bodies;
pub mod digest;
pub mod events;
pub mod exchange;
pub mod http1;
pub mod ingress;
pub mod meter;
mod own_request;
pub mod peers;
pub mod plane;
mod seldom;
pub mod upstream;
mod vital;
pub mod wakeups;
