//! The system side of kvferry: everything that needs `unsafe` or a bare system call, so that the crates above need
//! neither; and the lock-free words that two threads or two processes meet on, checked with loom.
//!
//! Nothing here decides anything: no policy, no threads of its own, no settings.
//!
//! | what | where |
//! |---|---|
//! | memory of ours and of a peer | [`RegionSlice`], [`RemoteSlice`], [`SharedMemory`] |
//! | copying | [`Vectors`] (another process), [`copy()`] and [`Copies`] (this one) |
//! | what an address is | [`MemoryMap`], [`probe()`], [`Facts`], [`explain_denial`] |
//! | who is there | [`LinkPage`], [`RobustHolder`], [`DeathWatch`], [`peer_credentials`] |
//! | words | [`StateWord`], [`ChunkGate`], [`HandleRing`], [`enter`], [`revoke`], [`is_quiet`] |
//! | sockets | [`Gather`], [`send_with_fds`], [`listen_abstract`], [`listen_tcp`] |
//! | process | [`ForkGuard`], [`spawn_quiet`], [`EventFd`], [`park`], [`unpark`] |
//!
//! Under `cfg(loom)` only the words are built.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("kvferry runs on 64-bit Linux only");

mod busy;
mod gate;
mod ring;
mod state;
mod sync;

pub use busy::{BusyGuard, BusyWord, enter, is_quiet, revoke};
pub use gate::{ChunkGate, GateState};
pub use ring::HandleRing;
pub use state::{Phase, PostRefused, Snapshot, StateWord};

#[cfg(not(loom))]
pub use system::*;

#[cfg(not(loom))]
mod child_fds;
#[cfg(not(loom))]
mod cma;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod denial;
#[cfg(not(loom))]
mod event;
#[cfg(not(loom))]
mod facts;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
mod gather;
#[cfg(not(loom))]
mod link_page;
#[cfg(not(loom))]
mod liveness;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod maps;
#[cfg(not(loom))]
mod memfd;
#[cfg(not(loom))]
mod probe;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod tcp;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(not(loom))]
mod thread;

/// What needs the kernel and so cannot run inside the model checker.
#[cfg(not(loom))]
mod system {
    pub use crate::child_fds::ClosedInChild;
    pub use crate::cma::{CmaError, Direction, FaultSide, MAX_VECTORS, Vectors};
    pub use crate::copy::{Copies, CopyError, copy, copy_fence};
    pub use crate::denial::{DenialCause, Ptracer, explain_denial, set_ptracer};
    pub use crate::event::EventFd;
    pub use crate::facts::Facts;
    pub use crate::fork::ForkGuard;
    pub use crate::futex::{park, unpark};
    pub use crate::gather::{Gather, MAX_GATHER};
    pub use crate::link_page::{COPIERS, LinkPage, LinkPageError, Side};
    pub use crate::liveness::{DeathWatch, HoldError, Liveness, MAX_HELD, RobustHolder, WaitAny};
    pub use crate::maps::{Backing, MapFacts, MapFault, MemoryMap, Special};
    pub use crate::memfd::{ImportError, OutOfBounds, SharedMemory};
    pub use crate::probe::{NonceWord, probe, self_cma_works};
    pub use crate::process::{Pid, gettid, is_dumpable, set_dumpable};
    pub use crate::region::{RegionSlice, RemoteSlice, Touch};
    pub use crate::socket::{
        MAX_FDS, PeerCredentials, accept, connect_abstract, connect_path, listen_abstract, listen_path,
        peer_credentials, peer_pidfd, recv_with_fds, send_with_fds,
    };
    pub use crate::tcp::{
        accept_tcp, connect_tcp, connected, listen_tcp, local_address, remote_address, source_address,
    };
    pub use crate::thread::spawn_quiet;
    pub use rustix::io::Errno;
}
