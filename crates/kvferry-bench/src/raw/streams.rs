use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::team::at_once;
use crate::layout::{Piece, share_out};
use crate::message::Role;
use crate::pool::Pool;

/// Streams that a raw round goes over.
pub(crate) const STREAMS: usize = 2;

/// Bytes of a call. Of the sizes from 64 KiB to 1 MiB this was the fastest with large blocks and no slower with small.
const CALL: u64 = 256 << 10;

/// What the kernel takes of vectors in a call.
const MAX_VECTORS: usize = 1024;

/// One stream's share of a row, ready to be sent or received straight from and to the blocks.
pub(crate) struct Stream<'a> {
    socket: &'a TcpStream,
    /// Ranges of a pool that is borrowed for as long as the socket.
    calls: Vec<Vec<libc::iovec>>,
}

// SAFETY: the pointers of the vectors are only numbers until a call hands them to the kernel.
unsafe impl Send for Stream<'_> {}

impl<'a> Stream<'a> {
    /// Shares the blocks of a row out to the streams; both sides come to the same.
    pub(crate) fn share(
        pool: &'a Pool,
        role: Role,
        pieces: &[Piece],
        sockets: &'a [TcpStream],
    ) -> Result<Vec<Self>> {
        let shares = share_out(pieces, sockets.len());
        sockets
            .iter()
            .zip(shares)
            .map(|(socket, share)| Ok(Self { socket, calls: calls(pool, role, &share)? }))
            .collect()
    }

    /// The near side's part of a round: sends and waits for a byte that says that all has arrived, or asks by a byte
    /// and receives.
    pub(crate) fn near(streams: &mut [Self], send: bool) -> Result<Duration> {
        at_once(streams.iter_mut().collect(), |stream| {
            if send {
                stream.send()?;
                stream.hear()
            } else {
                stream.tell()?;
                stream.receive()
            }
        })
    }

    /// The far side's part.
    pub(crate) fn far(streams: &mut [Self], send: bool) -> Result<()> {
        at_once(streams.iter_mut().collect(), |stream| {
            if send {
                stream.hear()?;
                stream.send()
            } else {
                stream.receive()?;
                stream.tell()
            }
        })?;
        Ok(())
    }

    fn tell(&mut self) -> Result<()> {
        self.socket.write_all(&[1]).context("a raw stream broke")
    }

    fn hear(&mut self) -> Result<()> {
        self.socket.read_exact(&mut [0]).context("a raw stream broke")
    }

    fn send(&mut self) -> Result<()> {
        self.each_call(libc::MSG_NOSIGNAL, |fd, message, flags| {
            // SAFETY: the header points to vectors of memory that the pool keeps, which the kernel reads.
            unsafe { libc::sendmsg(fd, message, flags) }
        })
    }

    fn receive(&mut self) -> Result<()> {
        self.each_call(libc::MSG_WAITALL, |fd, message, flags| {
            // SAFETY: the header points to vectors of memory that the pool keeps and that nobody borrows.
            unsafe { libc::recvmsg(fd, message, flags) }
        })
    }

    fn each_call(
        &mut self,
        flags: libc::c_int,
        call: impl Fn(libc::c_int, *mut libc::msghdr, libc::c_int) -> isize,
    ) -> Result<()> {
        for vectors in &self.calls {
            let mut rest = vectors.clone();
            let mut from = 0;
            while from < rest.len() {
                // SAFETY: a header without name, vectors and control is valid.
                let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = rest[from..].as_mut_ptr();
                message.msg_iovlen = rest.len() - from;
                let moved = call(self.socket.as_raw_fd(), &raw mut message, flags);
                let Ok(mut moved) = usize::try_from(moved) else {
                    let error = io::Error::last_os_error();
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    return Err(error).context("a raw stream broke");
                };
                ensure!(moved > 0, "a raw stream was closed");
                while from < rest.len() && moved >= rest[from].iov_len {
                    moved -= rest[from].iov_len;
                    from += 1;
                }
                if moved > 0 {
                    let vector = &mut rest[from];
                    vector.iov_base = vector.iov_base.wrapping_byte_add(moved);
                    vector.iov_len -= moved;
                }
            }
        }
        Ok(())
    }
}

/// The vectors of each call.
fn calls(pool: &Pool, role: Role, pieces: &[Piece]) -> Result<Vec<Vec<libc::iovec>>> {
    let mut calls = Vec::new();
    let (mut call, mut room) = (Vec::new(), CALL);
    for &piece in pieces {
        let mut rest = piece;
        while rest.len > 0 {
            let (head, tail) = rest.cut(room);
            let offset = if role == Role::Near { head.near } else { head.far };
            let slice = pool.slice(offset, head.len)?;
            let iov_base = std::ptr::with_exposed_provenance_mut(slice.addr() as usize);
            call.push(libc::iovec { iov_base, iov_len: slice.len() as usize });
            room -= head.len;
            if room == 0 || call.len() == MAX_VECTORS {
                calls.push(std::mem::take(&mut call));
                room = CALL;
            }
            rest = tail;
        }
    }
    if !call.is_empty() {
        calls.push(call);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests;
