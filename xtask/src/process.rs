//! Running a command with its output both shown and kept, and an end in time.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Whether this process was asked to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// How often the processes that are left are looked for; longer than starting one takes.
const LOOK: Duration = Duration::from_millis(50);
/// Looks before giving up on processes that can't be killed, as they wait for a disk.
const MOST_LOOKS: usize = 100;

/// What a command left.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Whether it was killed because it ran past its limit.
    pub(crate) timed_out: bool,
    /// Lines of stdout.
    pub(crate) stdout: Vec<String>,
    /// Lines of stdout and stderr in the order in which they came.
    pub(crate) output: Vec<String>,
}

/// A line of a command's output.
pub(crate) enum Line {
    Out(String),
    Err(String),
}

impl Line {
    /// Without its end.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Out(text) | Self::Err(text) => text,
        }
    }
}

/// Runs a command to its end, its lines shown as they come; kills it and its descendants after
/// `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> io::Result<Finished> {
    let finished = run_with(command, limit, |line| match line {
        Line::Out(text) => println!("{text}"),
        Line::Err(text) => eprintln!("{text}"),
    });
    io::stdout().flush()?;
    finished
}

/// Runs a command to its end, its lines given away as they come; kills it and its descendants after
/// `limit`.
pub(crate) fn run_with(
    command: &mut Command,
    limit: Duration,
    mut show: impl FnMut(&Line),
) -> io::Result<Finished> {
    stay_if_ending();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let Some(pipe) = child.stdout.take() {
        read_lines(pipe, sender.clone(), Line::Out);
    }
    if let Some(pipe) = child.stderr.take() {
        read_lines(pipe, sender, Line::Err);
    }

    let (mut stdout, mut output) = (Vec::new(), Vec::new());
    let started = Instant::now();
    let (mut timed_out, mut ended): (bool, Option<Instant>) = (false, None);
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                show(&line);
                if let Line::Out(text) = &line {
                    stdout.push(text.clone());
                }
                output.push(line.text().to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if ended.is_none() && child.try_wait()?.is_some() {
            ended = Some(Instant::now());
        }
        // A process left behind may hold the pipe open for ever.
        if ended.is_some_and(|at| at.elapsed() > Duration::from_secs(2)) {
            break;
        }
        if !timed_out && ended.is_none() && started.elapsed() > limit {
            timed_out = true;
            kill_tree(&mut child)?;
        }
    }
    let status = child.wait()?;
    stay_if_ending();
    Ok(Finished { status, timed_out, stdout, output })
}

/// Starts and tells nothing any more once this process was asked to end: the thread that ends it is at work.
fn stay_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn read_lines<R: Read + Send + 'static>(pipe: R, sender: Sender<Line>, wrap: fn(String) -> Line) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&bytes);
            if sender.send(wrap(line.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                break;
            }
            bytes.clear();
        }
    });
}

/// Kills a child and all that descend from it. A process group would be simpler, but would take the
/// child out of reach of the terminal's Ctrl-C.
fn kill_tree(child: &mut Child) -> io::Result<()> {
    for pid in descendants(child.id()) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
    child.kill()
}

/// Makes this process the parent of those whose own parent ends before them, so that [`end_orphans`] finds them.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    Ok(())
}

/// Kills all that descend from this process, and says how many still ran.
pub(crate) fn end_orphans() -> usize {
    let pids = descendants(std::process::id());
    pids.into_iter().filter(|pid| runs(*pid) && kill_process(*pid, Signal::KILL).is_ok()).count()
}

/// When this process is asked to end (SIGINT, SIGTERM, SIGHUP), all that descend from it are killed first, also those in
/// sessions of their own, which a terminal's Ctrl-C does not reach. With [`adopt_orphans`] none can slip away.
pub(crate) fn end_with_descendants() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        ENDING.store(true, Ordering::SeqCst);
        for _ in 0..MOST_LOOKS {
            thread::sleep(LOOK);
            if end_orphans() == 0 {
                break;
            }
        }
        // As shells tell of who was ended by a signal.
        std::process::exit(128 + signal);
    });
    Ok(())
}

/// Whether a process is there and not yet waiting to be asked for its end.
fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

fn descendants(root: u32) -> Vec<Pid> {
    let processes: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parent_in(&stat)?))
        })
        .collect();
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        family.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    family[1..].iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)).collect()
}

/// The parent's id in a /proc stat line, whose second field is a name in brackets that may itself
/// hold brackets and spaces.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
