//! TCP sockets that never make anybody wait.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on an address; port 0 takes any that is free.
pub fn listen_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    // A restarted process must have its port back although old connections linger.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Begins to connect. The socket is writable once that is over; ask [`connected`] then.
pub fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    without_delay(&socket)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Whether a socket has connected: None while it is still at it.
pub fn connected<Fd: AsFd>(socket: Fd) -> io::Result<Option<()>> {
    sockopt::socket_error(&socket)?.map_err(io::Error::from)?;
    match net::getpeername(&socket) {
        Ok(_) => Ok(Some(())),
        Err(Errno::NOTCONN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the next connection of a listener. `WouldBlock` if there is none.
pub fn accept_tcp<Fd: AsFd>(listener: Fd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::io::retry_on_intr(|| net::accept_with(&listener, flags))?;
    without_delay(&socket)?;
    Ok(socket)
}

/// The address of a socket's own end.
pub fn local_address<Fd: AsFd>(socket: Fd) -> io::Result<SocketAddr> {
    Ok(net::getsockname(socket)?.try_into().map_err(|_: Errno| Errno::AFNOSUPPORT)?)
}

/// The address of a socket's other end.
pub fn remote_address<Fd: AsFd>(socket: Fd) -> io::Result<SocketAddr> {
    let address = net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    Ok(address.try_into().map_err(|_: Errno| Errno::AFNOSUPPORT)?)
}

/// The address that packets to `destination` leave from. Sends nothing.
pub fn source_address(destination: SocketAddr) -> io::Result<SocketAddr> {
    let family = family(destination);
    let socket = net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    net::connect(&socket, &destination)?;
    local_address(&socket)
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family(address), SocketType::STREAM, flags, None)?)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn without_delay(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}
