use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::channel::Channel;
use crate::far::PATIENCE;
use crate::message::{Reply, Request};

/// Where the far side is.
pub enum Opposite {
    /// A child process that plays [`serve_pipes`](crate::serve_pipes); a new one for each setup.
    Child(Box<dyn Fn() -> Command>),
    /// A process that plays [`listen`](crate::listen) there.
    Listening(SocketAddr),
}

/// The far side as the near one sees it.
pub(crate) struct Peer {
    channel: Channel,
    /// Its host; the port has no meaning.
    pub(crate) host: SocketAddr,
    child: Option<Child>,
}

impl Opposite {
    pub(crate) fn meet(&self) -> Result<Peer> {
        match self {
            Self::Child(command) => {
                let mut child = command()
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("can't start the far process")?;
                let pipes = child.stdout.take().zip(child.stdin.take()).context("a child without pipes")?;
                let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Ok(Peer { channel: Channel::new(pipes.0, pipes.1), host, child: Some(child) })
            }
            Self::Listening(address) => {
                let socket = TcpStream::connect_timeout(address, PATIENCE)
                    .with_context(|| format!("can't connect to {address}: does `--listen` run there?"))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Peer { channel: Channel::over(&socket)?, host: socket.peer_addr()?, child: None })
            }
        }
    }
}

impl Peer {
    /// Asks, and takes the one answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.begin(request);
        self.answer()
    }

    /// Asks, and leaves the answer for later.
    pub(crate) fn begin(&mut self, request: &Request) {
        // If the other side is gone, hearing nothing from it says so better.
        let _ = self.channel.say(request);
    }

    /// Takes the next answer.
    pub(crate) fn answer(&mut self) -> Result<Reply> {
        match self.channel.hear(PATIENCE)? {
            Some(Reply::Failed(error)) => bail!("the far side: {error}"),
            Some(reply) => Ok(reply),
            None => match self.child.as_mut().map(Child::wait).transpose()? {
                Some(status) => bail!("the far process ended with {status}"),
                None => bail!("the far side has closed the connection"),
            },
        }
    }

    /// Asks for something that is done or not.
    pub(crate) fn order(&mut self, request: &Request) -> Result<()> {
        let reply = self.ask(request)?;
        self.done(reply)
    }

    /// Waits for the second answer of an order that has two.
    pub(crate) fn over(&mut self) -> Result<()> {
        let reply = self.answer()?;
        self.done(reply)
    }

    /// Asks for a comparison; returns the first difference.
    pub(crate) fn compare(&mut self, request: &Request) -> Result<Option<String>> {
        match self.ask(request)? {
            Reply::Compared(fault) => Ok(fault),
            other => bail!("the far side answered out of turn: {other:?}"),
        }
    }

    /// Seconds of CPU time of the far process.
    pub(crate) fn cpu_time(&mut self) -> Result<f64> {
        match self.ask(&Request::CpuTime)? {
            Reply::CpuTime(seconds) => Ok(seconds),
            other => bail!("the far side answered out of turn: {other:?}"),
        }
    }

    /// Tells a listening far side that the run is over.
    pub(crate) fn say_goodbye(&mut self) {
        // There is nobody else to tell.
        let _ = self.channel.say(&Request::Goodbye);
    }

    fn done(&mut self, reply: Reply) -> Result<()> {
        match reply {
            Reply::Done => Ok(()),
            other => bail!("the far side answered out of turn: {other:?}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It has nothing to finish.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
