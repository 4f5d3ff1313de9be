//! Proving that a peer's memory can be reached, and naming what forbids it.

#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use rustix::io::Errno;

use crate::cma::CmaError;
use crate::process::Pid;

/// A word whose address is sent to a peer, which reads and answers it by the same means as it will copy data.
#[derive(Debug)]
pub struct NonceWord(Box<AtomicU64>);

impl NonceWord {
    /// A word that holds `nonce`.
    #[must_use]
    pub fn new(nonce: u64) -> Self {
        Self(Box::new(AtomicU64::new(nonce)))
    }

    /// Where it is, in this process; stays until the word is dropped.
    #[must_use]
    pub fn addr(&self) -> u64 {
        core::ptr::from_ref(&*self.0) as u64
    }

    /// What it holds now: the nonce, or the peer's answer.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Reads the word at `addr` of process `pid`, compares it with `expect` and, if it is that, overwrites it.
pub fn probe(pid: Pid, addr: u64, expect: u64, write_back: u64) -> Result<(), CmaError> {
    let _ = (pid, addr, expect, write_back);
    unimplemented!()
}

/// Whether cross-memory attach works on this process itself; false where a seccomp filter forbids it.
#[must_use]
pub fn self_cma_works() -> bool {
    unimplemented!()
}

/// What decides whether two processes may reach each other's memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    /// Process id, in its own PID namespace.
    pub pid: i32,
    /// Real user id.
    pub uid: u32,
    /// Effective user id.
    pub euid: u32,
    /// Real group id.
    pub gid: u32,
    /// Inode of the PID namespace; 0 if unknown.
    pub pid_ns: u64,
    /// Inode of the user namespace; 0 if unknown.
    pub user_ns: u64,
    /// Inode of the network namespace; 0 if unknown.
    pub net_ns: u64,
    /// Whether the process may be dumped.
    pub dumpable: bool,
    /// Seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp: u8,
    /// Whether it has given up gaining privileges.
    pub no_new_privs: bool,
    /// Yama's `ptrace_scope`; None where there is no Yama.
    pub yama_scope: Option<u8>,
    /// Whether it has the capability `CAP_SYS_PTRACE` in its user namespace.
    pub cap_sys_ptrace: bool,
}

impl Facts {
    /// The facts of this process.
    pub fn gather() -> io::Result<Self> {
        unimplemented!()
    }
}

/// What forbids one process the other's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DenialCause {
    /// The Yama security module, with its `ptrace_scope`.
    Yama {
        /// 1: ancestors only; 2: administrators only; 3: nobody.
        scope: u8,
    },
    /// A seccomp filter on our own process.
    Seccomp,
    /// The two are in different user namespaces.
    UserNamespace,
    /// The two are in different PID namespaces and cannot name each other.
    PidNamespace,
    /// The peer may not be dumped.
    NotDumpable,
    /// The two belong to different users or groups.
    OtherUser {
        /// Our user id.
        ours: u32,
        /// The peer's user id.
        theirs: u32,
    },
    /// The peer is gone.
    ProcessGone,
    /// None of the above explains it.
    Unknown(Errno),
}

impl DenialCause {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        unimplemented!()
    }
}

impl core::fmt::Display for DenialCause {
    fn fmt(&self, _f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        unimplemented!()
    }
}

/// Names what forbade us the peer's memory, from the kernel's answer and the facts of both sides.
///
/// `self_works` is [`self_cma_works`], `peer_pid` the peer's id as we see it, 0 if it has none here. A pure function:
/// a situation that a machine does not offer, such as Yama, is tried out by passing its facts.
#[must_use]
pub fn explain_denial(
    errno: Errno,
    ours: &Facts,
    theirs: &Facts,
    self_works: bool,
    peer_pid: i32,
) -> DenialCause {
    let _ = (errno, ours, theirs, self_works, peer_pid);
    unimplemented!()
}

/// Whom Yama shall let reach this process's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ptracer {
    /// This process and its descendants.
    Process(Pid),
    /// Any process of this user.
    Any,
    /// Nobody beyond the ancestors.
    None,
}

/// Tells Yama who may reach this process's memory. Where there is no Yama there is nothing to tell: Ok.
pub fn set_ptracer(ptracer: Ptracer) -> io::Result<()> {
    let _ = ptracer;
    unimplemented!()
}
