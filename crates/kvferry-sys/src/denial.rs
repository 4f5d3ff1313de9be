//! Naming what forbids one process the other's memory, and whom to ask for it.

#[cfg(test)]
mod tests;

use core::fmt;
use std::io;

use rustix::io::Errno;
use rustix::process::PTracer;

use crate::facts::{Facts, yama_scope};
use crate::process::Pid;

/// What forbids one process the other's memory. Displayed as a sentence without a full stop.
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
    /// The two are in different PID namespaces, and we cannot name the peer.
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
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Yama { scope: 1 } => {
                "let the peer allow it with ptracer `peer` or `any` (KVFERRY_PTRACER), \
                 or set kernel.yama.ptrace_scope to 0"
            }
            Self::Yama { scope: 2 } => {
                "give this process CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 or 1"
            }
            Self::Yama { .. } => {
                "boot with kernel.yama.ptrace_scope below 3, which cannot be lowered later, \
                 or keep the data in memory that the agent allocates"
            }
            Self::Seccomp => {
                "allow process_vm_readv and process_vm_writev in this process's seccomp profile \
                 (a container runtime allows them with CAP_SYS_PTRACE or a profile of your own)"
            }
            Self::UserNamespace => "run both processes in one user namespace",
            Self::PidNamespace => {
                "run both processes in one PID namespace (containers: share it, or use the host's)"
            }
            Self::NotDumpable => {
                "leave the peer dumpable: no PR_SET_DUMPABLE 0, no set-user-id or capabilities on its program file"
            }
            Self::OtherUser { .. } => {
                "run both processes as one user and group, or give this one CAP_SYS_PTRACE"
            }
            Self::ProcessGone => "start the peer again",
            Self::Unknown(_) => "look for a security module (SELinux, AppArmor) that confines one of the two",
        }
    }
}

impl fmt::Display for DenialCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yama { scope } => {
                write!(f, "the Yama security module forbids it (kernel.yama.ptrace_scope is {scope})")
            }
            Self::Seccomp => f.write_str("a seccomp filter forbids this process cross-memory attach"),
            Self::UserNamespace => f.write_str("the peer is in another user namespace"),
            Self::PidNamespace => f.write_str("the peer is in another PID namespace and has no id in ours"),
            Self::NotDumpable => f.write_str("the peer is not dumpable"),
            Self::OtherUser { ours, theirs } if ours == theirs => {
                write!(f, "the peer runs as another group or with other effective ids (user {ours})")
            }
            Self::OtherUser { ours, theirs } => {
                write!(f, "the peer runs as user {theirs}, this process as {ours}")
            }
            Self::ProcessGone => f.write_str("the peer's process is gone"),
            Self::Unknown(errno) => {
                write!(f, "the kernel forbids it for a reason it does not tell ({errno})")
            }
        }
    }
}

/// Names what forbade us the peer's memory, from the kernel's answer and the facts of both sides.
///
/// `self_works` is [`self_cma_works`](crate::self_cma_works), `peer_pid` the peer's id as we see it, 0 if it has none
/// here. A pure function: a situation that a machine does not offer, such as Yama, is tried by passing its facts.
#[must_use]
pub fn explain_denial(
    errno: Errno,
    ours: &Facts,
    theirs: &Facts,
    self_works: bool,
    peer_pid: i32,
) -> DenialCause {
    let other_pid_ns = differ(ours.pid_ns, theirs.pid_ns);
    if peer_pid <= 0 || (errno == Errno::SRCH && other_pid_ns) {
        return DenialCause::PidNamespace;
    }
    if errno == Errno::SRCH {
        return DenialCause::ProcessGone;
    }
    // The kernel never refuses a process its own memory; only a filter does.
    if !self_works || errno == Errno::NOSYS {
        return DenialCause::Seccomp;
    }
    // The rest in the order in which the kernel asks. A capability in one namespace is none in another.
    if differ(ours.user_ns, theirs.user_ns) {
        return DenialCause::UserNamespace;
    }
    if !ours.cap_sys_ptrace {
        if ours.uid != theirs.uid || ours.uid != theirs.euid || ours.gid != theirs.gid {
            return DenialCause::OtherUser { ours: ours.uid, theirs: theirs.euid };
        }
        if !theirs.dumpable {
            return DenialCause::NotDumpable;
        }
    }
    match ours.yama_scope {
        Some(scope @ (1 | 2)) if !ours.cap_sys_ptrace => DenialCause::Yama { scope },
        Some(scope @ 3..) => DenialCause::Yama { scope },
        _ => DenialCause::Unknown(errno),
    }
}

/// Whether two namespaces are known to be different.
fn differ(ours: u64, theirs: u64) -> bool {
    ours != 0 && theirs != 0 && ours != theirs
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

/// Tells Yama who may reach this process's memory, instead of whomever it was told before. Where there is no Yama
/// there is nothing to tell: Ok.
pub fn set_ptracer(ptracer: Ptracer) -> io::Result<()> {
    let tracer = match ptracer {
        Ptracer::Process(pid) => match rustix::process::Pid::from_raw(pid.get()) {
            Some(pid) => PTracer::ProcessID(pid),
            None => return Err(Errno::SRCH.into()),
        },
        Ptracer::Any => PTracer::Any,
        Ptracer::None => PTracer::None,
    };
    match rustix::process::set_ptracer(tracer) {
        Err(Errno::INVAL) if yama_scope().is_none() => Ok(()),
        other => Ok(other?),
    }
}
