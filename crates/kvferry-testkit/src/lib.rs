//! What kvferry's own tests stand on: memory that can be checked, pairs of agents, transports that misbehave on purpose, the
//! suite that every transport must pass, and a harness of processes.

pub mod child;
pub mod conformance;
mod faulty;
pub mod harness;
pub mod hook;
mod late;
mod memory;
mod pair;
mod pattern;
mod proxy;
mod recording;
mod rng;
pub mod soak;
mod tapped;
mod throttled;

pub use kvferry_hosts as hosts;

pub use faulty::{Fault, Faulty};
pub use late::{LateEvidence, LateOptions, LateTransport};
pub use memory::{MemoryClass, MprotectFlags, Pool, PrivateMemory};
pub use pair::{PATIENCE, Pair, Side, agent, agent_with, eventually, expect_done, run, unique_name};
pub use pattern::{Difference, Pattern};
pub use proxy::Proxy;
pub use recording::Recording;
pub use rng::Rng;
pub use tapped::{Call, Report, Tap, TappedOp, TappedSink, tapped};
pub use throttled::Throttled;
