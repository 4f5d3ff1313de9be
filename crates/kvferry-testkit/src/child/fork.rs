//! Children of a worker by fork.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    time::Duration,
};

use kvferry::{Block, MemoryKind, Op, RegionDesc, RegionId, Status, TransferOptions};

use super::{broken, world::World};
use crate::harness::{Failure, Forked, now_ns};

/// A forked child that hangs is ended by the kernel.
const SECONDS: u32 = 10;

/// A sleeper goes in the end even if nobody ends it.
const SLEEPER_SECONDS: u32 = 120;

/// Forks a child that sleeps, and holds copies of all that this process has.
pub(super) fn sleeper() -> io::Result<i32> {
    // SAFETY: the child calls nothing but what is safe after a fork.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above. It must outlive this process, so it has no parent-death signal; and it must not keep the
            // harness's pipes open.
            unsafe {
                libc::close(0);
                libc::close(1);
                libc::alarm(SLEEPER_SECONDS);
                loop {
                    libc::pause();
                }
            }
        }
        child => Ok(child),
    }
}

/// Forks a child that makes every call of the agent and says what it was answered.
pub(super) fn probe(world: &World) -> Result<Forked, Failure> {
    let (read, write) = pipe().map_err(broken)?;
    let begun = now_ns();
    // SAFETY: the child's agent is dead by contract; what else the child does takes no lock that another thread of
    // this process may hold but the allocator's, which the C library mends.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(broken(io::Error::last_os_error())),
        0 => {
            // SAFETY: numbers only.
            unsafe { libc::alarm(SECONDS) };
            drop(read);
            let codes = world.forked_codes().unwrap_or_default();
            let told = serde_json::to_vec(&codes).unwrap_or_default();
            let written = File::from(write).write_all(&told);
            // Drops must do nothing in a forked child.
            world.close();
            // SAFETY: ends the child without running what the parent registered for its own exit.
            unsafe { libc::_exit(i32::from(written.is_err())) };
        }
        _ => {}
    }
    drop(write);
    let mut told = Vec::new();
    File::from(read).read_to_end(&mut told).map_err(broken)?;
    let mut status = 0;
    // SAFETY: our child; the kernel writes one integer.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let codes: BTreeMap<String, String> = serde_json::from_slice(&told).unwrap_or_default();
    Ok(Forked { codes, status, took_ns: now_ns() - begun })
}

impl World {
    /// Makes every call; those without a result must only return.
    fn forked_codes(&self) -> Result<BTreeMap<String, String>, Failure> {
        let agent = self.agent()?;
        let block = [Block { addr: 4096, len: 4096, device: 0 }];
        let desc = RegionDesc { addr: 4096, len: 4096, kind: MemoryKind::Dram, device: 0 };
        let soon = Duration::from_millis(100);
        let mut codes = BTreeMap::new();
        let mut note =
            |call: &str, code: Option<&str>| codes.insert(call.to_owned(), code.unwrap_or("ok").to_owned());
        // SAFETY: nothing is registered: the agent does not live here.
        note("register_raw", unsafe { agent.register_raw(&[desc]) }.err().map(|e| e.code()));
        note("deregister", agent.deregister_within(&[RegionId(1)], soon).err().map(|e| e.code()));
        note("load_remote", agent.load_remote(b"").err().map(|e| e.code()));
        note("prepare_local", agent.prepare_local(MemoryKind::Dram, &block[..]).err().map(|e| e.code()));
        note(
            "prepare_remote",
            agent.prepare_remote("peer", MemoryKind::Dram, &block[..]).err().map(|e| e.code()),
        );
        let flat = (MemoryKind::Dram, &block[..]);
        let transfer = agent.transfer_flat(Op::Write, flat, "peer", flat, TransferOptions::default());
        note("transfer_flat", transfer.err().map(|e| e.code()));
        note("connect", agent.connect("peer", soon).err().map(|e| e.code()));
        note("disconnect", agent.disconnect_within("peer", soon).err().map(|e| e.code()));
        note("remove_remote", agent.remove_remote("peer").err().map(|e| e.code()));
        note("notify", agent.notify("peer", b"x").err().map(|e| e.code()));
        note("partial_metadata", agent.partial_metadata(&[], true).err().map(|e| e.code()));
        note("alloc", agent.alloc(4096).err().map(|e| e.code()));
        note("path", agent.path("peer").err().map(|e| e.code()));
        for (number, transfer) in self.all_transfers() {
            note(&format!("post {number}"), transfer.post().err().map(|e| e.code()));
            note(&format!("cancel {number}"), transfer.cancel_within(soon).err().map(|e| e.code()));
            let waited = transfer.wait(soon);
            note(&format!("wait {number}"), waited.as_ref().map_or_else(|e| Some(e.code()), code_of));
            note(&format!("status {number}"), code_of(&transfer.status()));
            let _ = transfer.telemetry();
        }
        let _ = agent.metadata();
        let _ = agent.notifications();
        let _ = agent.regions();
        let _ = agent.validate(&[desc]);
        let _ = agent.check_remote("peer", None);
        let _ = agent.stats();
        let _ = agent.events();
        Ok(codes)
    }
}

fn code_of(status: &Status) -> Option<&'static str> {
    match status {
        Status::Failed(fault) => Some(fault.code()),
        _ => None,
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two descriptors, which are ours.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}
