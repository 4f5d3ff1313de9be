//! A page that nobody can touch until it is given back: what a slow pager looks like to a copy.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::mm::{Advice, UserfaultfdFlags};

/// Bytes withheld.
pub(super) const PAGE: u64 = 4096;

const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;

/// A page of private memory behind a userfaultfd.
#[derive(Debug)]
pub(super) struct Withheld {
    fd: OwnedFd,
    addr: u64,
}

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeRequest {
    start: u64,
    len: u64,
    /// The mode; unused where the kernel takes a range only.
    mode: u64,
    ioctls: u64,
}

impl Withheld {
    /// Takes the page at `addr` away: whoever touches it waits.
    ///
    /// The caller owns the page: what it holds is lost.
    pub(super) fn new(addr: u64) -> io::Result<Self> {
        // SAFETY: registering a range with it changes when that memory is there, which areas allow for.
        let fd = unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK)? };
        let mut api = ApiRequest { api: API, features: 0, ioctls: 0 };
        // UFFDIO_API
        ioctl(&fd, 0xc018_aa3f, &mut api)?;
        // SAFETY: memory of an area of ours, whose words are read and written as atomics only.
        unsafe { rustix::mm::madvise(addr as *mut _, PAGE as usize, Advice::LinuxDontNeed)? };
        let mut range = RangeRequest { start: addr, len: PAGE, mode: MODE_MISSING, ioctls: 0 };
        // UFFDIO_REGISTER
        ioctl(&fd, 0xc020_aa00, &mut range)?;
        Ok(Self { fd, addr })
    }

    /// Gives the page back, zeroed, and lets those go on who wait.
    pub(super) fn resolve(self) -> io::Result<()> {
        let mut range = RangeRequest { start: self.addr, len: PAGE, mode: 0, ioctls: 0 };
        // UFFDIO_UNREGISTER, which wakes who waits.
        ioctl(&self.fd, 0x8010_aa01, &mut range)
    }
}

fn ioctl<T>(fd: &OwnedFd, number: libc::c_ulong, request: &mut T) -> io::Result<()> {
    // SAFETY: each caller passes the structure that the kernel takes with this number (or a longer one).
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number, std::ptr::from_mut(request)) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
