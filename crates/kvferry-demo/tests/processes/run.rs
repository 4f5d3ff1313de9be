//! Runs the demo's program and judges how it ended.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that a run may take: a tiny one takes a second, and two cores may be busy.
const LIMIT: Duration = Duration::from_secs(100);

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The last line of standard output, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}\n{self:#?}"))
    }
}

/// A command of the demo that hears nothing of the environment's settings.
pub(crate) fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvferry-demo"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KVFERRY_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the demo to its end.
pub(crate) fn run(args: &[&str]) -> Run {
    finish(&mut demo(args))
}

/// Runs a command to its end; kills it and panics if that takes too long.
pub(crate) fn finish(command: &mut Command) -> Run {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!(
                "{command:?} took longer than {LIMIT:?}: {}{}",
                stdout.join().unwrap(),
                stderr.join().unwrap()
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Run { code: status.code(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn reader(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
