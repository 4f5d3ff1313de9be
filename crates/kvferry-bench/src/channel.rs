use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line that is taken; metadata is the longest part of one.
const LONGEST: u64 = 4 << 20;

/// Messages as lines of JSON over a pair of pipes or a socket.
pub(crate) struct Channel {
    writer: Box<dyn Write + Send>,
    lines: Receiver<io::Result<String>>,
    socket: Option<TcpStream>,
}

impl Channel {
    pub(crate) fn new(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
        let (sender, lines) = mpsc::sync_channel(16);
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            while let Some(line) = next_line(&mut reader).transpose() {
                let broken = line.is_err();
                if sender.send(line).is_err() || broken {
                    break;
                }
            }
        });
        Self { writer: Box::new(writer), lines, socket: None }
    }

    pub(crate) fn over(socket: &TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let mut channel = Self::new(socket.try_clone()?, socket.try_clone()?);
        channel.socket = Some(socket.try_clone()?);
        Ok(channel)
    }

    pub(crate) fn say<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer.write_all(&line).and_then(|()| self.writer.flush()).context("the other side is gone")
    }

    /// The next message; `None` when the other side has closed.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<Option<T>> {
        match self.lines.recv_timeout(within) {
            Ok(line) => {
                let line = line.context("the other side can't be heard")?;
                let start: String = line.chars().take(200).collect();
                let message = serde_json::from_str(&line);
                message.map(Some).with_context(|| format!("the other side said {start:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the other side did not answer in {within:?}"),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The reading thread has the socket too, and would keep it open for as long as the other side does.
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let mut bounded = reader.take(LONGEST);
    if bounded.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if !line.ends_with('\n') && bounded.limit() == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests;
