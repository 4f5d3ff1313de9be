//! The two processes of a probe as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};

use super::message::Message;
use crate::program::Program;

/// Longest that one step may take: even 4 GiB at a bad 1 GB/s pass many times.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A child of this process, which ends with it: it reads from a pipe that closes then.
pub(super) struct Sibling {
    role: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Sibling {
    /// Starts this same program in one of the two roles.
    pub(super) fn start(role: &'static str, mechanism: &str, mib: u32) -> Result<Self> {
        let mut child = Program::own()?
            .command()
            .args(["probe-side", role, "--mechanism", mechanism, "--mib", &mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start the probe's processes")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(anyhow!("the probe's {role} has no pipes"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { role, child, stdin, lines })
    }

    pub(super) fn write(&mut self, message: &Message) -> Result<()> {
        let line = serde_json::to_string(message)?;
        // If it ended, reading says so better.
        let _ = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
        Ok(())
    }

    pub(super) fn read(&mut self) -> Result<Message> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line)
                .with_context(|| format!("the probe's {} said {line:?}", self.role)),
            Err(RecvTimeoutError::Timeout) => {
                Err(anyhow!("the probe's {} did not answer in {} s", self.role, PATIENCE.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                Err(anyhow!("the probe's {} ended with {status} before it answered", self.role))
            }
        }
    }

    pub(super) fn unexpected(&self, message: &Message) -> Error {
        anyhow!("the probe's {} answered out of turn: {message:?}", self.role)
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        // It has nothing to finish.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
