//! Processes for tests: a parent drives workers, each an agent with memory, over pipes.
//!
//! ```no_run
//! use kvferry_testkit::harness::{Memory, State, Worker, link};
//!
//! let worker = |name: &str| {
//!     let worker = Worker::start("target/debug/kvferry-test-child", name);
//!     worker.build();
//!     worker
//! };
//! let (prefill, decode) = (worker("prefill"), worker("decode"));
//! let source = prefill.registered(Memory::Private, 1 << 20);
//! let pool = decode.registered(Memory::Private, 1 << 20);
//! prefill.fill(source.buffer, 7);
//! link(&prefill, &decode);
//! let transfer = prefill.transfer(&prefill.write(source.buffer, &decode, pool.buffer).in_blocks_of(64 << 10)).unwrap();
//! prefill.post(transfer).unwrap();
//! assert_eq!(prefill.wait(transfer, 5_000).unwrap(), State::Done);
//! ```
//! Every wait is bounded, and workers die with the thread that started them.

mod calls;
mod chance;
mod clock;
mod launch;
mod protocol;
mod report;
mod worker;

pub use calls::{Registered, link};
pub use chance::Chance;
pub use clock::{eventually, now_ns, sleep_until};
pub use launch::Launch;
pub use protocol::{
    Answer, Audit, Buffer, Confinement, Counters, Envelope, Exit, Failure, Forked, Holdings, MARK, Measured,
    Memory, Mismatch, PATTERN_STEP, POISON, Part, Place, Received, RegionState, Request, Scan, StampedEvent,
    State, TransferSpec, Trap, TrapAct, pattern,
};
pub use report::{Times, rounds, skip};
pub use worker::{PATIENCE, Ticket, Worker};
