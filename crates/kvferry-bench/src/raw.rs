//! The raw loops: what a mechanism does without any of kvferry's work around it.

mod copying;
mod memory_file;
mod pingpong;
mod streams;
mod team;
mod wires;

pub(crate) use copying::{Lanes, Reached};
pub(crate) use pingpong::{ping, pong};
pub(crate) use streams::Stream;
pub(crate) use wires::{FarWires, Listening, NearWires};
