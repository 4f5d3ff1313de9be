//! `kvferry bench`: arguments and printing; what is measured, and how, is in kvferry-bench.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use kvferry::Settings;
use kvferry_bench::{
    Bar, BenchOp, BenchPath, Memory, Missing, Opposite, Options, Pattern, PlotFormat, Report, Row, Watch,
};

use crate::program::Program;
use crate::{NONSENSE, output};

/// Measures kvferry between two processes of this host, or of two hosts.
///
/// Each row stands beside the raw loop of the same mechanism, which runs on the same memory in the same run, in turns.
/// All bytes are compared, outside of the timed part. docs/performance.md explains the rows.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which of a (1 x 256 MiB), b (4,096 x 64 KiB), c (16,384 x 4 KiB), d (65,536 x 1 KiB), r (16,384 x 4 KiB in runs
    /// of 16), e (one 4 KiB block), g (a notification) and p (the cost of posting) to measure
    #[arg(long, value_delimiter = ',', value_name = "LETTERS", default_values_t = Pattern::ALL)]
    patterns: Vec<Pattern>,
    /// Which way the bytes go
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    op: Direction,
    /// The paths to hold the agents to: same_host, tcp, or both with a comma between
    #[arg(long, value_delimiter = ',', default_values_t = [BenchPath::SameHost])]
    path: Vec<BenchPath>,
    /// The pools' memory: private, kvferry (from the agent's alloc), or both with a comma between
    #[arg(long, value_delimiter = ',', default_values_t = [Memory::Private])]
    memory: Vec<Memory>,
    /// Counted rounds of each row
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Size of each side's pool; patterns shrink with a pool of less than 1 GiB
    #[arg(long, value_parser = size, default_value = "1GiB")]
    pool: u64,
    /// Copy threads of each agent, and of the raw loop; without it what KVFERRY_THREADS says
    #[arg(long)]
    threads: Option<usize>,
    /// Print a JSON object a row on stdout instead of the table
    #[arg(long)]
    json: bool,
    /// Draw the rows too, into a .svg or .png file
    #[arg(long, value_name = "FILE", value_parser = plot_file)]
    plot: Option<PathBuf>,
    /// Be the far side of one run, for `--connect` on another host
    ///
    /// Nobody is asked for a password: for networks that are trusted.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Measure with the far side that listens there
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    connect: Option<SocketAddr>,
    /// Make a byte wrong after each transfer, to see that it is found
    #[arg(long, hide = true)]
    flip: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Direction {
    Read,
    Write,
    Both,
}

/// Measures and prints; the code is 1 if a row is missing or a byte was wrong.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let usable = kvferry::init_logging().and_then(|()| Settings::from_env().map(|_| ()));
    if let Err(error) = usable {
        return Ok(refuse(&error));
    }
    if let Some(address) = args.listen {
        kvferry_bench::listen(address, output::complain)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = args.options();
    if let Err(error) = options.check() {
        return Ok(refuse(&error));
    }
    let program = Program::own()?;
    let opposite = match args.connect {
        Some(address) => Opposite::Listening(address),
        None => Opposite::Child(Box::new(move || {
            let mut command = program.command();
            command.arg("bench-side");
            command
        })),
    };
    let mut screen = Screen { bar: Bar::new(), json: args.json, broken: Ok(()) };
    let report = kvferry_bench::run(&options, &opposite, &mut screen)?;
    screen.broken?;
    if !args.json {
        output::print(&as_text(&report, &options))?;
    }
    for missing in &report.missing {
        output::complain(&missing.to_string());
    }
    if let Some(file) = &args.plot
        && !report.rows.is_empty()
    {
        kvferry_bench::plot(&report, file)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays the far side for the process that started this one.
pub(crate) fn side() -> Result<ExitCode> {
    kvferry::init_logging()?;
    kvferry_bench::serve_pipes()?;
    Ok(ExitCode::SUCCESS)
}

/// Shows how it goes, and the rows as they come if they are for machines.
struct Screen {
    bar: Bar,
    json: bool,
    broken: Result<()>,
}

impl Watch for Screen {
    fn begin(&mut self, steps: usize) {
        self.bar.begin(steps);
    }

    fn row(&mut self, label: &str) {
        self.bar.row(label);
    }

    fn step(&mut self) {
        self.bar.step();
    }

    fn measured(&mut self, row: &Row) {
        if self.json && self.broken.is_ok() {
            self.broken = self.bar.aside(|| output::print(&format!("{}\n", serde_json::to_string(row)?)));
        }
    }

    fn missed(&mut self, _: &Missing) {}

    fn end(&mut self) {
        self.bar.end();
    }
}

impl Args {
    fn options(&self) -> Options {
        let ops = match self.op {
            Direction::Read => vec![BenchOp::Read],
            Direction::Write => vec![BenchOp::Write],
            Direction::Both => vec![BenchOp::Write, BenchOp::Read],
        };
        Options {
            patterns: distinct(&self.patterns),
            ops,
            paths: distinct(&self.path),
            memories: distinct(&self.memory),
            rounds: self.rounds,
            pool: self.pool,
            threads: self.threads,
            flip: self.flip,
        }
    }
}

fn as_text(report: &Report, options: &Options) -> String {
    let mut text = report.table();
    if options.is_shrunk() {
        text.push_str(
            "\nThe pools are smaller than 1 GiB, and so are the patterns: not to be compared with others.\n",
        );
    }
    text.push('\n');
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text.push_str(&format!("{}\n", report.conditions));
    text
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    output::complain(&format!("error: {error}"));
    ExitCode::from(NONSENSE)
}

fn distinct<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(value) {
            distinct.push(*value);
        }
    }
    distinct
}

/// A number of bytes, with KiB, MiB or GiB behind it or nothing.
fn size(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        other => return Err(anyhow!("{other:?} is no unit; there are KiB, MiB and GiB")),
    };
    let number: u64 = digits.parse().with_context(|| format!("{digits:?} is no number"))?;
    number.checked_mul(1 << shift).context("that is more than there is")
}

/// An address that may be given by name.
fn address(text: &str) -> Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| format!("{text:?} is no ADDR:PORT"))?;
    found.next().context("the name has no address")
}

/// A file that a plot can be written to: better found out before the run.
fn plot_file(text: &str) -> Result<PathBuf> {
    let file = PathBuf::from(text);
    PlotFormat::of(&file)?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    ensure!(dir.is_dir(), "{} is no directory", dir.display());
    Ok(file)
}
