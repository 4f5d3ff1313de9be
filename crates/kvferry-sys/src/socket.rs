//! Unix stream sockets: where two agents of one host meet, and pass file descriptors.
//!
//! All sockets are non-blocking and closed on exec; no call raises SIGPIPE.

#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::process::last_errno;

/// Connections that may wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 1024;

/// File descriptors that one message may carry.
pub const MAX_FDS: usize = 8;

/// `SO_PEERPIDFD` (Linux 6.5) is younger than the libraries.
const SO_PEERPIDFD: libc::c_int = 77;

/// Who is at the other end of a socket, by the kernel's word: who connected, or who called listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerCredentials {
    /// Its process id as seen from here; 0 if it lives in a PID namespace that is not visible from here.
    pub pid: i32,
    /// Its effective user id, as seen from here.
    pub uid: u32,
    /// Its effective group id, as seen from here.
    pub gid: u32,
}

/// Listens on a name in this network namespace's abstract space: up to 107 bytes, no file.
pub fn listen_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    listen(&SocketAddrUnix::new_abstract_name(name)?)
}

/// Listens on a path of up to 107 bytes, which must not exist yet. The file outlives the socket.
pub fn listen_path(path: &Path) -> io::Result<OwnedFd> {
    listen(&SocketAddrUnix::new(path)?)
}

/// Connects to a name in the abstract space. `WouldBlock` if too many connections wait there already.
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    connect(&SocketAddrUnix::new_abstract_name(name)?)
}

/// Connects to a path. `WouldBlock` if too many connections wait there already.
pub fn connect_path(path: &Path) -> io::Result<OwnedFd> {
    connect(&SocketAddrUnix::new(path)?)
}

/// Takes the next connection. `WouldBlock` if there is none.
pub fn accept<Fd: AsFd>(listener: Fd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::io::retry_on_intr(|| net::accept_with(&listener, flags))?)
}

/// Who is at the other end.
pub fn peer_credentials<Fd: AsFd>(socket: Fd) -> io::Result<PeerCredentials> {
    // Not the library's call: its type cannot hold the process id 0 of a peer in another PID namespace.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    socket_option(socket.as_fd(), libc::SO_PEERCRED, &mut credentials)?;
    Ok(PeerCredentials { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid })
}

/// A descriptor of the process at the other end. None if the kernel gives none, or it is not visible from here.
///
/// Before Linux 6.5 it is looked up by its number, which by then may be another process's: compare what a probe says.
pub fn peer_pidfd<Fd: AsFd>(socket: Fd) -> Option<OwnedFd> {
    let mut raw: libc::c_int = -1;
    if socket_option(socket.as_fd(), SO_PEERPIDFD, &mut raw).is_ok() && raw >= 0 {
        // SAFETY: the kernel has just made this descriptor for us.
        return Some(unsafe { OwnedFd::from_raw_fd(raw) });
    }
    let pid = rustix::process::Pid::from_raw(peer_credentials(socket).ok()?.pid)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Sends `bytes` with up to [`MAX_FDS`] descriptors; returns how many bytes went. The descriptors go with the first
/// byte, so they need at least one. `WouldBlock` if nothing can be sent now.
pub fn send_with_fds<Fd: AsFd>(socket: Fd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || (bytes.is_empty() && !fds.is_empty()) {
        return Err(Errno::INVAL.into());
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent =
        rustix::io::retry_on_intr(|| net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?;
    Ok(sent)
}

/// Receives into `bytes` and appends the descriptors that came along to `fds`, at most [`MAX_FDS`] of them; returns
/// how many bytes came, 0 at the end of the stream. `WouldBlock` if there is nothing now.
///
/// A peer that sends more descriptors at once gets an error here, and those that did arrive are closed.
pub fn recv_with_fds<Fd: AsFd>(socket: Fd, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::io::retry_on_intr(|| {
        net::recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    let mut arrived = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            arrived.extend(rights);
        }
    }
    // The buffer's padding may have room for one too many; what has no room is cut off. Returning closes the rest.
    if received.flags.contains(ReturnFlags::CTRUNC) || arrived.len() > MAX_FDS {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer sent too many file descriptors at once",
        ));
    }
    fds.append(&mut arrived);
    Ok(received.bytes)
}

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn listen(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::bind(&socket, address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn connect(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = stream()?;
    rustix::io::retry_on_intr(|| net::connect(&socket, address))?;
    Ok(socket)
}

/// Reads the socket option `option` into `value`.
fn socket_option<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`. The two types used, a descriptor and credentials,
    // are plain numbers of that length.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut *value).cast(), &raw mut len)
    };
    if rc == 0 && len as usize == size_of::<T>() {
        Ok(())
    } else if rc == 0 {
        Err(Errno::INVAL)
    } else {
        Err(last_errno())
    }
}
