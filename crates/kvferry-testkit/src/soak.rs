//! Random rounds of everything that can go wrong between two agents, for as long as one likes: `cargo xtask soak`.
//!
//! A round posts one transfer or several, lets something happen in their midst, and looks at every byte: what is done is whole,
//! nothing changed outside the blocks, nothing lands once the memory was handed back, each notification came at most once and in
//! order, and afterwards both agents still work. What a round does follows from the seed and its number; only its moments depend
//! on the machine.

mod act;
mod bounds;
mod breaks;
mod guard;
mod ledger;
mod machine;
mod report;
mod rig;
mod round;

use std::{
    collections::BTreeMap,
    fs,
    io::IsTerminal,
    panic::{AssertUnwindSafe, catch_unwind, set_hook},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use self::{
    act::{Draft, Way},
    guard::Guard,
    machine::Machine,
    report::{Conditions, Report, clock},
    rig::{MAIN, Rig, SIDE},
};
use crate::harness::now_ns;

/// After so many failures nothing new is learnt.
const ENOUGH_FAILURES: u64 = 20;

/// How often a line says how far the run is.
const EACH: Duration = Duration::from_secs(10);

/// Plays random rounds of cancel, release, deregister, disconnect, kill, stop, restart and loss over same_host and TCP, and checks
/// every byte. Exits with 1 if anything was not as promised.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak", max_term_width = 100)]
struct Cli {
    /// How long to play
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,

    /// The same in seconds
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    seconds: Option<u64>,

    /// What the rounds follow from; taken from the clock if it is not given
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Play this round only, again and again, until one fails or the time is over
    #[arg(long, value_name = "N", requires = "seed")]
    round: Option<u64>,

    /// Write the report as a JSON object to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the report's tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// The worker's program; the one beside this one if it is not given
    #[arg(long, value_name = "FILE", hide = true)]
    child: Option<PathBuf>,
}

/// The `main` of the soak.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let guard = Guard::start();
    let child = child(cli)?;
    // Not after half an hour.
    for file in [&cli.json, &cli.markdown].into_iter().flatten() {
        fs::write(file, "").with_context(|| format!("can't write {}", file.display()))?;
    }
    let seed = cli.seed.unwrap_or_else(now_ns);
    let time = Duration::from_secs(cli.seconds.unwrap_or(cli.minutes * 60));
    println!("soak: {} with seed {seed}", clock(time));
    let machine = Machine::start();
    let mut report = Report::new(seed, conditions());
    Play { guard, child, seed, only: cli.round, time }.play(&mut report);
    report.conditions.load[1] = load();
    report.lateness = machine.lateness();
    report.peak = peak();
    println!("\n{}\n{}", report.tables(false), report.told());
    report.failures.iter().for_each(|broken| println!("FAILED: {broken}"));
    report.late().iter().for_each(|late| println!("FAILED: {late}"));
    if let Some(file) = &cli.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        fs::write(file, text + "\n").with_context(|| format!("can't write {}", file.display()))?;
    }
    if let Some(file) = &cli.markdown {
        fs::write(file, report.markdown()).with_context(|| format!("can't write {}", file.display()))?;
    }
    let failures = report.failures() + report.late().len() as u64;
    println!("soak: {} rounds, {failures} failures", report.rounds());
    Ok(report.good())
}

/// What is played, and for how long.
struct Play {
    guard: Guard,
    child: PathBuf,
    seed: u64,
    only: Option<u64>,
    time: Duration,
}

impl Play {
    fn play(&self, report: &mut Report) {
        // Workers end with the thread that starts them, so this one does it all.
        let mut rigs: BTreeMap<Way, Rig> = BTreeMap::new();
        catch_panics();
        let begun = Instant::now();
        let mut told = begun;
        let mut number = 0;
        while begun.elapsed() < self.time && report.failures() < ENOUGH_FAILURES && !self.guard.is_stopping()
        {
            let draft = Draft::new(self.seed, self.only.unwrap_or(number), MAIN, SIDE);
            number += 1;
            self.one(&draft, &mut rigs, report);
            if self.only.is_some() && report.failures() > 0 {
                break;
            }
            report.took = begun.elapsed();
            if told.elapsed() >= EACH && std::io::stderr().is_terminal() {
                told = Instant::now();
                let (rounds, failures) = (report.rounds(), report.failures());
                eprintln!(
                    "soak: {} of {}: {rounds} rounds, {failures} failures",
                    clock(report.took),
                    clock(self.time)
                );
            }
        }
    }

    fn one(&self, draft: &Draft, rigs: &mut BTreeMap<Way, Rig>, report: &mut Report) {
        self.guard.begin(format!("round {} of seed {}", draft.round, self.seed));
        // Taken out: after a failure nobody knows what state it is in, and another is built.
        let rig = rigs.remove(&draft.way);
        let played = catch_unwind(AssertUnwindSafe(|| {
            let mut rig = rig.unwrap_or_else(|| Rig::new(&self.child, draft.way));
            let inside = round::play(&mut rig, draft, &mut report.times);
            (rig, inside)
        }));
        self.guard.end();
        match played {
            Ok((rig, inside)) => {
                report.passed(draft, inside);
                rigs.insert(draft.way, rig);
            }
            // Ctrl-C reaches the workers too.
            Err(_) if self.guard.is_stopping() => {}
            Err(_) => {
                let text = std::mem::take(&mut *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner));
                eprintln!("soak: FAILED: {}", report.failed(draft, text));
            }
        }
    }
}

/// What the last panic of the playing thread said.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps what panics of this thread say; those of others are printed as ever.
fn catch_panics() {
    let (ours, usual) = (std::thread::current().id(), std::panic::take_hook());
    set_hook(Box::new(move |panic| {
        if std::thread::current().id() != ours {
            return usual(panic);
        }
        let at = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("a panic without words");
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("{text}{at}");
    }));
}

fn child(cli: &Cli) -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("kvferry-test-child");
    let child = cli.child.clone().unwrap_or(beside);
    ensure!(
        child.is_file(),
        "{} is not there: build it with `cargo build -p kvferry-testkit`",
        child.display()
    );
    Ok(child)
}

fn conditions() -> Conditions {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory.trim_end_matches("kB").trim().parse().unwrap_or_default();
    Conditions {
        commit: commit(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpu: field(&read("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_gib: (kib + (1 << 19)) >> 20,
        load: [load(); 2],
    }
}

/// The commit of the working directory, with a mark if it was changed.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { commit + " with changes" } else { commit }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The most memory that this process held, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default()
        << 10
}
