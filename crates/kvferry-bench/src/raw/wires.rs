use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kvferry_sys::{Pid, SharedMemory, peer_credentials, recv_with_fds, send_with_fds};

use super::memory_file;
use super::streams::STREAMS;
use crate::message::Door;
use crate::options::{BenchPath, Memory};
use crate::pool::Pool;

/// Longest that a raw loop waits for the other side.
const PATIENCE: Duration = Duration::from_secs(60);

/// The far side's listener, before anybody has connected.
pub(crate) enum Listening {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The far side's connections for the raw loops.
pub(crate) enum FarWires {
    Unix(UnixStream),
    Tcp(Vec<TcpStream>),
}

/// The near side's connections for the raw loops, and its ways into the far pool.
pub(crate) enum NearWires {
    Unix {
        socket: UnixStream,
        /// The far process, by the kernel's word.
        pid: Pid,
        /// The far pool, mapped, if it can be.
        memory: Option<SharedMemory>,
    },
    Tcp(Vec<TcpStream>),
}

impl Listening {
    /// Listens where the raw loops of a path meet.
    pub(crate) fn new(path: BenchPath, bind: IpAddr) -> Result<(Self, Door)> {
        match path {
            BenchPath::SameHost => {
                let mut random = [0; 16];
                let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
                ensure!(filled == random.len(), "no random numbers");
                let name = [b"kvferry-bench-".as_slice(), &random].concat();
                let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name)?)
                    .context("can't listen for the raw loops")?;
                Ok((Self::Unix(listener), Door::Unix(name)))
            }
            BenchPath::Tcp => {
                let listener = TcpListener::bind((bind, 0)).context("can't listen for the raw loops")?;
                let port = listener.local_addr()?.port();
                Ok((Self::Tcp(listener), Door::Tcp(port)))
            }
        }
    }

    /// Takes the connections, which the near side has opened already; hands the pool's memory over if it has a file.
    pub(crate) fn accept(self, pool: &Pool, memory: Memory) -> Result<FarWires> {
        match self {
            Self::Unix(listener) => {
                listener.set_nonblocking(true)?;
                let (socket, _) = listener.accept().context("nobody has connected to the raw loops")?;
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                let file = match memory {
                    Memory::Private => None,
                    Memory::Kvferry => Some(memory_file::of_mapping(pool.addr())?),
                };
                let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
                send_with_fds(&socket, &[files.len() as u8], &files).context("can't hand the pool over")?;
                Ok(FarWires::Unix(socket))
            }
            Self::Tcp(listener) => {
                let mut numbered = Vec::new();
                for _ in 0..STREAMS {
                    listener.set_nonblocking(true)?;
                    let (socket, _) = listener.accept().context("nobody has connected to the raw loops")?;
                    set_up(&socket)?;
                    let mut number = [0];
                    (&socket).read_exact(&mut number).context("a raw stream broke")?;
                    numbered.push((number[0], socket));
                }
                // They may have come in another order than they were opened in.
                numbered.sort_by_key(|(number, _)| *number);
                Ok(FarWires::Tcp(numbered.into_iter().map(|(_, socket)| socket).collect()))
            }
        }
    }
}

impl NearWires {
    /// Opens the connections; [`NearWires::receive`] has to follow once the far side has taken them.
    pub(crate) fn connect(door: &Door, host: SocketAddr) -> Result<Self> {
        match door {
            Door::Unix(name) => {
                let socket = UnixStream::connect_addr(&UnixAddress::from_abstract_name(name)?)
                    .context("can't reach the far side of the raw loops: is it on this host?")?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                let pid = peer_credentials(&socket)?.pid;
                let pid = Pid::new(pid).context("the far process has no number here")?;
                Ok(Self::Unix { socket, pid, memory: None })
            }
            Door::Tcp(port) => {
                let mut address = host;
                address.set_port(*port);
                let mut sockets = Vec::new();
                for number in 0..STREAMS {
                    let socket = TcpStream::connect_timeout(&address, PATIENCE)
                        .with_context(|| format!("can't connect a raw stream to {address}"))?;
                    set_up(&socket)?;
                    (&socket).write_all(&[number as u8]).context("a raw stream broke")?;
                    sockets.push(socket);
                }
                Ok(Self::Tcp(sockets))
            }
        }
    }

    /// Takes the far pool of `len` bytes, if the far side has handed it over.
    pub(crate) fn receive(&mut self, len: u64) -> Result<()> {
        let Self::Unix { socket, memory, .. } = self else { return Ok(()) };
        let (mut count, mut files) = ([0], Vec::new());
        let received = recv_with_fds(&*socket, &mut count, &mut files)?;
        ensure!(received == 1 && usize::from(count[0]) == files.len(), "the far pool was not handed over");
        if let Some(file) = files.pop() {
            let shared = SharedMemory::import(file, len).context("can't map the far pool")?;
            shared.populate().context("can't map the far pool")?;
            *memory = Some(shared);
        }
        Ok(())
    }

    /// The bare socket for round trips.
    pub(crate) fn socket(&self) -> Result<Socket<'_>> {
        match self {
            Self::Unix { socket, .. } => Ok(Socket::Unix(socket)),
            Self::Tcp(sockets) => Socket::first(sockets),
        }
    }
}

impl FarWires {
    /// The bare socket for round trips.
    pub(crate) fn socket(&self) -> Result<Socket<'_>> {
        match self {
            Self::Unix(socket) => Ok(Socket::Unix(socket)),
            Self::Tcp(sockets) => Socket::first(sockets),
        }
    }

    /// The streams of a raw round.
    pub(crate) fn streams(&self) -> Result<&[TcpStream]> {
        match self {
            Self::Unix(_) => bail!("this path has no raw streams"),
            Self::Tcp(sockets) => Ok(sockets),
        }
    }
}

/// A socket of either kind.
pub(crate) enum Socket<'a> {
    Unix(&'a UnixStream),
    Tcp(&'a TcpStream),
}

impl<'a> Socket<'a> {
    fn first(sockets: &'a [TcpStream]) -> Result<Self> {
        sockets.first().map(Socket::Tcp).context("no raw stream")
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buf),
            Self::Tcp(socket) => socket.read(buf),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(buf),
            Self::Tcp(socket) => socket.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_up(socket: &TcpStream) -> Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(())
}
