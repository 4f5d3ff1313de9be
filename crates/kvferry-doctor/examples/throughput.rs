//! How fast logs are read, by the time of the one core it takes, and in how much memory: 1 GiB a row, made while
//! it is read.
//!
//! `cargo run --release -p kvferry-doctor --example throughput`

use kvferry_doctor::explain::Explainer;
use std::io::Read;

const SIZE: u64 = 1 << 30;

/// Lines, over and over.
struct Log {
    lines: Vec<u8>,
    at: usize,
    left: u64,
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = want.min(self.lines.len() - self.at);
        buffer[..got].copy_from_slice(&self.lines[self.at..self.at + got]);
        self.at = (self.at + got) % self.lines.len();
        self.left -= got as u64;
        Ok(got)
    }
}

fn main() {
    let healthy = include_str!("../tests/data/healthy/nixl.log");
    let serving: String = (0..200)
        .map(|n| {
            format!(
                "(EngineCore_DP0 pid=594) INFO 11-30 02:{:02}:{:02} [loggers.py:127] Engine 000: Avg prompt throughput: \
                 {n}.3 tokens/s, Avg generation throughput: 41.{n} tokens/s, Running: {n} reqs, Waiting: 0 reqs\n",
                n / 60,
                n % 60
            )
        })
        .collect();
    let error = "(Worker_TP0 pid=4121) ERROR 11-30 10:12:40 [nixl_connector.py:2290] Remote NIXL agent engine ID mismatch. \
                 Expected a-1,received b-2\n";
    let rows = [
        ("a log of serving", serving.clone()),
        ("the same, one line of 200 an error", format!("{serving}{error}")),
        ("NIXL and UCX at full verbosity", healthy.to_owned()),
        ("nothing but one error, repeated", error.to_owned()),
    ];
    let explainer = Explainer::built_in();
    for (name, lines) in rows {
        let log = Log { lines: lines.into_bytes(), at: 0, left: SIZE };
        let began = cpu_seconds();
        let explanation = explainer.inputs([(name.to_owned(), log)]).expect("no errors");
        let seconds = cpu_seconds() - began;
        let found = explanation.primary.as_ref().map_or("nothing", |primary| primary.slug.as_str());
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let speed = explanation.bytes as f64 / 1e6 / seconds;
        println!("{name}: {speed:.0} MB/s, {} lines, found {found}", explanation.lines);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("peak memory: {}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("unknown"));
}

/// User and system time of this process, in seconds; Linux counts it in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
