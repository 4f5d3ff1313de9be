//! A second process for tests: the test binary itself, started again on the same test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::process::Pid;

const ROLE: &str = "KVFERRY_SYS_TEST_ROLE";
/// What the second process says comes between the lines of the test framework.
const MARK: &str = "peer says: ";
/// A second process that lives longer than this is ended by the kernel.
const LIFETIME_SECONDS: u32 = 60;

/// The part that this process plays in its test; None in the first process.
pub(crate) fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    // SAFETY: no handler is installed; the alarm ends the process.
    unsafe { libc::alarm(LIFETIME_SECONDS) };
    Some(role)
}

/// Says a line to the first process.
pub(crate) fn tell(line: impl std::fmt::Display) {
    println!("{MARK}{line}");
}

/// Waits for a line from the first process; ends this one if there is none to come.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(read) if read > 0 => line.trim_end().to_owned(),
        _ => std::process::exit(0),
    }
}

/// The second process, seen from the first. Killed when dropped.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts `test` (its path in this crate) in a second process that plays `role`.
    pub(crate) fn start(test: &str, role: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::new(self.child.id() as i32).unwrap()
    }

    /// Waits for the next line that the peer tells.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the peer ended without a word");
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Waits for the next line that the peer tells: a number.
    pub(crate) fn hear_number<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self) -> T {
        self.hear().parse().unwrap()
    }

    pub(crate) fn tell(&mut self, line: impl std::fmt::Display) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends SIGKILL and does not wait.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
