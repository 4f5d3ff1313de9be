//! What decides whether two processes may reach each other's memory.

#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use rustix::process::{geteuid, getgid, getpid, getuid};

use crate::process::is_dumpable;

/// `CAP_SYS_PTRACE`, as a bit of a capability set.
const CAP_SYS_PTRACE: u64 = 1 << 19;

const YAMA_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// What decides whether two processes may reach each other's memory; sent to the peer, for
/// [`explain_denial`](crate::explain_denial).
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
    /// The facts of this process and the calling thread. An error if the proc file system is not there.
    pub fn gather() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        let capabilities =
            field(&status, "CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
        Ok(Self {
            pid: getpid().as_raw_pid(),
            uid: getuid().as_raw(),
            euid: geteuid().as_raw(),
            gid: getgid().as_raw(),
            pid_ns: namespace("pid"),
            user_ns: namespace("user"),
            net_ns: namespace("net"),
            dumpable: is_dumpable(),
            seccomp: field(&status, "Seccomp:").and_then(|mode| mode.parse().ok()).unwrap_or(0),
            no_new_privs: field(&status, "NoNewPrivs:") == Some("1"),
            yama_scope: yama_scope(),
            cap_sys_ptrace: capabilities & CAP_SYS_PTRACE != 0,
        })
    }
}

/// Yama's `ptrace_scope`; None where there is no Yama.
pub(crate) fn yama_scope() -> Option<u8> {
    fs::read_to_string(YAMA_SCOPE).ok()?.trim().parse().ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/thread-self/ns/{kind}")).map_or(0, |metadata| metadata.ino())
}
