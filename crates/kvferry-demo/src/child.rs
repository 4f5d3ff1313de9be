//! The parent's side of a worker process.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kvferry_hosts::Hosts;

use crate::control::{Order, Report, Role};

/// Lines of standard error that are kept of a worker.
const LAST_WORDS: usize = 20;

/// A worker process; killed and reaped when dropped.
pub(crate) struct Worker {
    role: Role,
    child: Child,
    orders: Option<Sender<Vec<u8>>>,
    words: Arc<Mutex<VecDeque<String>>>,
    threads: Vec<JoinHandle<()>>,
}

/// What came from a worker.
#[derive(Debug)]
pub(crate) struct Heard {
    /// From whom.
    pub(crate) role: Role,
    /// What.
    pub(crate) said: Said,
}

/// What a worker's pipe brought.
#[derive(Debug)]
pub(crate) enum Said {
    /// A report.
    Report(Report),
    /// Something that is no report.
    Garbled(String),
    /// Nothing more: the worker has closed its output.
    Closed,
}

impl Worker {
    /// Starts this program again in the part of `role`, on the host that it is given; its reports go to `heard`.
    pub(crate) fn start(role: Role, host: Option<(&Hosts, usize)>, heard: Sender<Heard>) -> Result<Self> {
        // Not by its name: that file may be another one by now.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("kvferry-demo")
            .args(["worker", &role.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = match host {
            Some((hosts, host)) => hosts.on(host, || command.spawn()),
            None => command.spawn(),
        };
        let mut child = child.with_context(|| format!("cannot start the {role} process"))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let (orders, lines) = channel();
        let mut worker =
            Self { role, child, orders: Some(orders), words: Arc::clone(&words), threads: Vec::new() };
        let ((stdin, stdout), stderr) = pipes.context("a worker without pipes")?;
        worker.spawn("orders", move || pass_on(stdin, &lines))?;
        worker.spawn("reports", move || hear(role, stdout, &heard))?;
        worker.spawn("words", move || keep(role, stderr, &words))?;
        Ok(worker)
    }

    /// Gives an order; does not wait for the worker to take it.
    pub(crate) fn order(&mut self, order: &Order) -> Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(line).is_ok());
        if sent { Ok(()) } else { Err(self.obituary("does not take orders any more")) }
    }

    /// Kills the worker as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let role = self.role;
        self.child.kill().with_context(|| format!("cannot kill the {role} process"))
    }

    /// Waits for the worker to end of itself, and says how it did.
    pub(crate) fn end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.obituary(&format!("did not end within {patience:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// An error that says what became of the worker, or `otherwise` if it lives.
    pub(crate) fn obituary(&mut self, otherwise: &str) -> anyhow::Error {
        let fate = self.fate().unwrap_or_else(|| otherwise.to_owned());
        anyhow::anyhow!("the {} process {fate}; {}", self.role, self.last_words())
    }

    /// An error that says how the worker ended, if it has.
    pub(crate) fn death(&mut self) -> Option<anyhow::Error> {
        let fate = self.fate()?;
        Some(anyhow::anyhow!("the {} process {fate}; {}", self.role, self.last_words()))
    }

    /// How the worker ended; none if it still lives in half a second, as its pipes close, and its
    /// peer may notice, a moment before it can be waited for.
    fn fate(&mut self) -> Option<String> {
        let deadline = Instant::now() + Duration::from_millis(500);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(match (status.code(), status.signal()) {
                    (Some(code), _) => format!("ended with exit code {code}"),
                    (_, Some(signal)) => format!("was killed by signal {signal}"),
                    _ => status.to_string(),
                });
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spawn(&mut self, what: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(format!("{} {what}", self.role));
        self.threads.push(thread.spawn(body)?);
        Ok(())
    }

    fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        match words.back() {
            Some(line) => format!("its last words: {line}"),
            None => "it said nothing on standard error".to_owned(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.orders = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Writes orders to a worker that may be slow to take them, or dead: its silence will tell.
fn pass_on(mut stdin: impl Write, lines: &Receiver<Vec<u8>>) {
    for line in lines {
        if stdin.write_all(&line).is_err() {
            return;
        }
    }
}

fn hear(role: Role, stdout: impl Read, heard: &Sender<Heard>) {
    for line in BufReader::new(stdout).lines() {
        let said = match line.map(|line| serde_json::from_str(&line)) {
            Ok(Ok(report)) => Said::Report(report),
            Ok(Err(error)) => Said::Garbled(error.to_string()),
            Err(error) => Said::Garbled(error.to_string()),
        };
        if heard.send(Heard { role, said }).is_err() {
            return;
        }
    }
    let said = Said::Closed;
    let _ = heard.send(Heard { role, said });
}

/// Keeps the last lines of standard error; with logs asked for, passes all of them on.
fn keep(role: Role, stderr: impl Read, words: &Mutex<VecDeque<String>>) {
    let log = std::env::var_os("KVFERRY_LOG").is_some();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if log {
            eprintln!("[{role}] {line}");
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == LAST_WORDS {
            words.pop_front();
        }
        words.push_back(line);
    }
}
