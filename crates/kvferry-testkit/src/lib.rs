//! placeholder

pub mod child;
pub mod harness;
