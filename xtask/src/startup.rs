//! `cargo xtask bench --startup`: what an engine pays before its first transfer, beside the stock package in the same run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::wheel;
use crate::workspace::Workspace;

/// The stock package, without what it does not need for this.
const STOCK: &str = "nixl-cu12==1.5.1";
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);
/// How much better each figure of these should be.
const TIMES: f64 = 3.0;
const BARRED: [&str; 5] = ["import", "agent", "register", "bytes", "load"];

/// Values by name, a best of the rounds each.
type Figures = BTreeMap<String, f64>;

/// Measures both, in turns, and prints a table; the code is 1 if a bar is missed.
pub(crate) fn exec(workspace: &Workspace) -> Result<ExitCode> {
    let wheels = wheel::build(workspace)?;
    let dir = workspace.target.join("startup");
    let ours = wheel::environment(&dir.join("ours"))?;
    wheel::install(&ours, &[&wheels.native, &wheels.nixl])?;
    let stock = wheel::environment(&dir.join("stock"))?;
    wheel::install(&stock, &["numpy"])?;
    wheel::install(&stock, &["--no-deps", STOCK])?;

    let script = workspace.root.join("python/bench/startup.py");
    let (mut we, mut they) = (Figures::new(), Figures::new());
    for _ in 0..ROUNDS {
        for (programs, best) in [(&ours, &mut we), (&stock, &mut they)] {
            for (name, value) in measure(workspace, programs, &script)? {
                let entry = best.entry(name).or_insert(value);
                *entry = entry.min(value);
            }
        }
    }
    println!("\nthe best of {ROUNDS} rounds in turns; ms, and bytes of the metadata of 10,000 regions");
    println!("{:<10} {:>12} {:>12} {:>8}", "", "kvferry", STOCK, "times");
    let mut good = true;
    for (name, ours) in &we {
        let theirs = they.get(name).copied().unwrap_or(f64::NAN);
        let times = theirs / ours;
        let barred = BARRED.contains(&name.as_str());
        good &= !barred || times >= TIMES;
        let note = if barred && times < TIMES { " (should be 3.0)" } else { "" };
        println!("{name:<10} {ours:>12.2} {theirs:>12.2} {times:>8.1}{note}");
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(workspace: &Workspace, programs: &Path, script: &Path) -> Result<Figures> {
    let mut python = Command::new(programs.join("python"));
    workspace.clean(&mut python);
    python.arg(script).arg("nixl_cu12").env("NIXL_LOG_LEVEL", "ERROR");
    let finished = process::run(&mut python, LIMIT).context("can't run Python")?;
    ensure!(finished.status.success(), "{} ended with {}", script.display(), finished.status);
    let last = finished.stdout.last().context("the script printed nothing")?;
    serde_json::from_str(last).with_context(|| format!("{last:?} is no measurement"))
}
