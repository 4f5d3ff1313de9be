//! The atomics that the lock-free words are made of: core's in what ships, loom's under `cfg(loom)`, so that the
//! model checker runs the shipped code.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
