//! Moves an LLM's KV cache between processes: registers memory, moves many scattered blocks one-sided, tells the receiver,
//! and says what failed, where, why and what to do.
//!
//! ```
//! use std::time::Duration;
//!
//! use kvferry::{Agent, Block, MemoryKind, Op, Status, TransferOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let prefill = Agent::builder("prefill").build()?;
//! let decode = Agent::builder("decode").build()?;
//!
//! // Memory that peers of this host can map; private memory can be registered as well.
//! let source = prefill.register(prefill.alloc(1 << 20)?)?;
//! let pool = decode.register(decode.alloc(1 << 20)?)?;
//! source.copy_in(0, &[7; 4096])?;
//!
//! // Metadata goes over a channel of yours; whoever holds it can connect.
//! prefill.load_remote(&decode.metadata())?;
//!
//! let block = |addr| [Block { addr, len: 4096, device: 0 }];
//! let transfer = prefill.transfer_flat(
//!     Op::Write,
//!     (MemoryKind::Dram, &block(source.addr())),
//!     "decode",
//!     (MemoryKind::Dram, &block(pool.addr() + 8192)),
//!     TransferOptions::default().notify("page 2 is there"),
//! )?;
//! transfer.post()?;
//! assert_eq!(transfer.wait(Duration::from_secs(5))?, Status::Done);
//!
//! assert_eq!(decode.notifications()[0].payload, b"page 2 is there");
//! let mut page = [0; 4096];
//! pool.copy_out(8192, &mut page)?;
//! assert_eq!(page, [7; 4096]);
//! # Ok(())
//! # }
//! ```

mod agent;
mod alloc;
mod codes;
mod control;
mod error;
mod hardware;
mod inbox;
mod links;
mod logging;
mod path;
mod peer;
mod prepared;
mod process;
mod queue;
mod region;
mod registration;
mod registry;
mod settings;
mod stats;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub))]
pub mod testing;
mod transfer;
pub mod transport;
mod watch;

pub use agent::{Agent, AgentBuilder};
pub use alloc::SharedBuf;
pub use codes::Code;
pub use error::{
    AllocError, BuildError, CancelError, ConnectError, DeregisterError, DisconnectError, FaultCause,
    FaultSide, LostCause, MetadataError, NotifyError, OutOfBounds, PeerError, PostError, PrepareError,
    RegionFault, RegisterCause, RegisterError, ReleaseError, SettingsError, TransferError, TransferFault,
    WaitTimeout,
};
pub use inbox::Notification;
pub use kvferry_proto::{
    Block, Blocks, GridRow, Incarnation, MemoryKind, Op, RegionDesc, RegionId, human_size,
};
pub use logging::{init_logging, log_filter};
pub use path::{Executor, Mechanism, Path, PathReport, Route, WhyNot};
pub use prepared::{Indices, PreparedList};
pub use queue::{CompletionQueue, Event};
pub use region::{Backing, LocalRegion, RegionInfo, RegionOwner};
pub use registration::{Registration, Rejected};
pub use settings::{PathName, PathSet, Ptracer, SettingDoc, Settings, Token};
pub use stats::{PathStats, Stats};
pub use transfer::{Completion, Status, Telemetry, Transfer, TransferOptions};

/// Locks, also after a panic elsewhere: none of our locks guards anything that a panic leaves half done.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An error with its causes in one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
