//! What a run came to: for people, for docs, for programs.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    time::Duration,
};

use serde::Serialize;

use super::{
    act::{Act, Draft, Way},
    bounds::{Row, Times},
    machine::Lateness,
};

/// Failures that are kept in full; the rest is counted.
const KEPT: usize = 50;

/// Threads that wake one after the other in what is measured.
const WAKES: f64 = 4.0;

/// Where and when a run took place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Conditions {
    pub(super) commit: String,
    pub(super) kernel: String,
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    /// Load average of a minute before the run, the soak's own not in it, and at its end.
    pub(super) load: [f64; 2],
}

/// A round that did not go as promised.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Broken {
    pub(super) round: u64,
    pub(super) way: String,
    pub(super) act: String,
    pub(super) write: bool,
    /// What was expected, and what was found.
    pub(super) text: String,
    /// The command that plays the round again.
    pub(super) replay: String,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Count {
    pub(super) rounds: u64,
    /// Rounds whose act came while the main transfer was on its way.
    pub(super) inside: u64,
    pub(super) failed: u64,
}

/// All that is known of a run.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) conditions: Conditions,
    pub(super) took: Duration,
    pub(super) counts: BTreeMap<(Act, Way), Count>,
    pub(super) failures: Vec<Broken>,
    /// Failures beyond those kept.
    pub(super) more: u64,
    pub(super) times: Times,
    /// How late the machine was by itself.
    pub(super) lateness: Lateness,
    /// Most memory that the soak itself held, in bytes.
    pub(super) peak: u64,
}

impl Report {
    pub(super) fn new(seed: u64, conditions: Conditions) -> Self {
        Self {
            seed,
            conditions,
            took: Duration::ZERO,
            counts: BTreeMap::new(),
            failures: Vec::new(),
            more: 0,
            times: Times::new(),
            lateness: Lateness::default(),
            peak: 0,
        }
    }

    /// Takes note of a round that ended well, and whether its act came in time.
    pub(super) fn passed(&mut self, draft: &Draft, inside: bool) {
        let count = self.counts.entry((draft.act, draft.way)).or_default();
        count.rounds += 1;
        count.inside += u64::from(inside);
    }

    /// Takes note of one that did not; returns it.
    pub(super) fn failed(&mut self, draft: &Draft, text: String) -> Broken {
        let count = self.counts.entry((draft.act, draft.way)).or_default();
        count.rounds += 1;
        count.failed += 1;
        let broken = Broken {
            round: draft.round,
            way: draft.way.to_string(),
            act: draft.act.to_string(),
            write: draft.write,
            text,
            replay: format!("cargo xtask soak --seed {} --round {}", self.seed, draft.round),
        };
        if self.failures.len() < KEPT {
            self.failures.push(broken.clone());
        } else {
            self.more += 1;
        }
        broken
    }

    pub(super) fn rounds(&self) -> u64 {
        self.counts.values().map(|count| count.rounds).sum()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.len() as u64 + self.more
    }

    /// Bounds that were not kept, beyond what the machine accounts for: whatever is measured takes several threads to wake.
    pub(super) fn late(&self) -> Vec<String> {
        self.times.broken(WAKES * self.lateness.p99_ms)
    }

    /// Whether all went as promised, and there was something to go.
    pub(super) fn good(&self) -> bool {
        self.rounds() > 0 && self.failures() == 0 && self.late().is_empty()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let rounds: Vec<_> = self
            .counts
            .iter()
            .map(|((act, way), count)| {
                serde_json::json!({ "act": act, "way": way, "rounds": count.rounds, "inside": count.inside,
                    "failed": count.failed })
            })
            .collect();
        serde_json::json!({
            "ok": self.good(),
            "seed": self.seed,
            "seconds": self.took.as_secs_f64(),
            "rounds": self.rounds(),
            "failures": self.failures(),
            "failed": self.failures,
            "late": self.late(),
            "machine": self.lateness,
            "kinds": rounds,
            "bounds": self.times.rows(),
            "conditions": self.conditions,
            "peak_bytes": self.peak,
        })
    }

    /// The tables, as text with columns or as Markdown.
    pub(super) fn tables(&self, markdown: bool) -> String {
        let mut text = String::new();
        let head: Vec<String> =
            ["act".to_owned()].into_iter().chain(Way::ALL.iter().map(Way::to_string)).collect();
        let mut acts: Vec<Act> = self.counts.keys().map(|(act, _)| *act).collect();
        acts.dedup();
        let cell = |act, way| match self.counts.get(&(act, way)) {
            None => String::new(),
            Some(count) if count.failed > 0 => format!("{}, {} FAILED", count.rounds, count.failed),
            Some(count) if act == Act::Whole => count.rounds.to_string(),
            Some(count) => format!("{} ({})", count.rounds, count.inside),
        };
        let rows = acts.into_iter().map(|act| {
            let cells = Way::ALL.iter().map(|way| cell(act, *way));
            [act.to_string()].into_iter().chain(cells).collect::<Vec<_>>()
        });
        table(&mut text, markdown, &head, &rows.collect::<Vec<_>>());
        let note = "In brackets: rounds in which the act came while the transfer that it was aimed at was on its way.";
        let _ = writeln!(text, "\n{note}\n");
        let head = ["time", "promised", "n", "p50 ms", "p99 ms", "max ms", "within"].map(str::to_owned);
        let rows: Vec<Vec<String>> = self.times.rows().iter().map(cells).collect();
        table(&mut text, markdown, &head, &rows);
        let Lateness { p50_ms, p99_ms, max_ms } = self.lateness;
        let _ = writeln!(
            text,
            "\nThe machine itself woke a sleeping thread too late by p50 {p50_ms:.2}, p99 {p99_ms:.2}, max {max_ms:.0} ms."
        );
        text
    }

    /// Conditions, in a sentence or two.
    pub(super) fn told(&self) -> String {
        let Conditions { commit, kernel, cpu, cores, memory_gib, load } = &self.conditions;
        format!(
            "{} rounds in {} with seed {}, {} failures; commit {commit}; {cores} cores ({cpu}), {memory_gib} GiB, \
             Linux {kernel}; load average {:.1} before, {:.1} at the end; the soak itself held at most {} MiB.",
            self.rounds(),
            clock(self.took),
            self.seed,
            self.failures() + self.late().len() as u64,
            load[0],
            load[1],
            self.peak >> 20
        )
    }

    /// The page's part for docs.
    pub(super) fn markdown(&self) -> String {
        format!("{}\n\n{}", self.told(), self.tables(true))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, way, act, write, text, replay } = self;
        let op = if *write { "WRITE" } else { "READ" };
        write!(f, "round {round} ({act}, {way}, {op}): {text}\n  again: {replay}")
    }
}

/// Minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}

fn cells(row: &Row) -> Vec<String> {
    let ms = |time: Option<f64>| match time {
        None => String::new(),
        Some(ms) if ms < 10.0 => format!("{ms:.2}"),
        Some(ms) => format!("{ms:.0}"),
    };
    let within = row.within.map(|share| format!("{:.1} %", (share * 1_000.0).floor() / 10.0));
    vec![
        row.bound.to_owned(),
        row.promise.to_owned(),
        row.count.to_string(),
        ms(row.p50_ms),
        ms(row.p99_ms),
        ms(row.max_ms),
        within.unwrap_or_default(),
    ]
}

fn table(text: &mut String, markdown: bool, head: &[String], rows: &[Vec<String>]) {
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].chars().count()]).max().unwrap_or_default()
        })
        .collect();
    let mut line = |cells: &[String]| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        let _ = if markdown {
            writeln!(text, "| {} |", cells.join(" | "))
        } else {
            writeln!(text, "{}", padded.join("  ").trim_end())
        };
    };
    line(head);
    if markdown {
        line(&vec!["---".to_owned(); head.len()]);
    }
    rows.iter().for_each(|row| line(row));
}

#[cfg(test)]
mod tests;
