//! Whether README and docs are still true where a machine can tell.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use crate::report::Outcome;
use crate::{Cli, Task, clients, groups, suite};

/// The commands that README promises.
const PROMISED: [&str; 2] = ["cargo xtask demo", "cargo xtask test"];

/// Checks each page: its `cargo xtask` commands exist, its relative links lead somewhere, a test named by a link to
/// a source file is in that file, and code quoted from a file is what the file holds. One check a page.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let pages = pages(root)?;
    for page in &pages {
        let text = fs::read_to_string(page).with_context(|| format!("can't read {}", page.display()))?;
        let name = page.strip_prefix(root).unwrap_or(page).display().to_string();
        let mut faults = faults(page, &text);
        faults.extend(misquotes(root, &text));
        if name == "README.md" {
            faults.extend(
                PROMISED
                    .iter()
                    .filter(|command| !has_command(&text, command))
                    .map(|command| format!("no code block shows `{command}`")),
            );
        }
        if name == "docs/README.md" {
            faults.extend(unlisted(&text, &pages));
        }
        if faults.is_empty() {
            outcome.passed += 1;
        } else {
            outcome.failed.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
        }
    }
    Ok(outcome)
}

/// The Markdown pages of the root and of docs/, sorted.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for dir in [root.to_path_buf(), root.join("docs")] {
        let entries = fs::read_dir(&dir).with_context(|| format!("can't list {}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn faults(page: &Path, text: &str) -> Vec<String> {
    let dir = page.parent().unwrap_or(page);
    let mut faults = Vec::new();
    for (number, line, fenced) in lines(text) {
        if fenced {
            if let Err(fault) = parse_command(line) {
                faults.push(format!("line {number}: {fault}"));
            }
            continue;
        }
        for (label, target) in links(line) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let Ok(source) = fs::read(dir.join(path))
                .or_else(|error| if dir.join(path).is_dir() { Ok(Vec::new()) } else { Err(error) })
            else {
                faults.push(format!("line {number}: {path} does not exist"));
                continue;
            };
            let test = label.strip_prefix('`').and_then(|label| label.strip_suffix('`'));
            if let (Some(test), true) = (test, path.ends_with(".rs")) {
                let name = test.rsplit("::").next().unwrap_or(test);
                if !String::from_utf8_lossy(&source).contains(&format!("fn {name}(")) {
                    faults.push(format!("line {number}: no `fn {name}` in {path}"));
                }
            }
        }
    }
    faults
}

/// Lines with their number and whether they lie in a fenced code block; without the fences.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        Some((index + 1, line, fenced))
    })
}

/// Code blocks that begin with "```rust file=PATH" or "```python file=PATH" and do not hold the file at PATH from the root,
/// its `//!` lines left out.
fn misquotes(root: &Path, text: &str) -> Vec<String> {
    let blocks = |language| text.split(language).skip(1);
    blocks("```rust file=")
        .chain(blocks("```python file="))
        .filter_map(|block| {
            let (path, rest) = block.split_once('\n')?;
            let quoted = rest.split("```").next().unwrap_or_default();
            let Ok(source) = fs::read_to_string(root.join(path)) else {
                return Some(format!("{path} is quoted and does not exist"));
            };
            let code: String = source
                .lines()
                .filter(|line| !line.starts_with("//!"))
                .flat_map(|line| [line, "\n"])
                .collect();
            (code.trim() != quoted.trim()).then(|| format!("the quoted {path} is not what the file holds"))
        })
        .collect()
}

fn has_command(text: &str, command: &str) -> bool {
    lines(text).any(|(_, line, fenced)| fenced && shell_words(line).join(" ") == command)
}

/// A command line's words, without the prompt before and the comment behind them.
fn shell_words(line: &str) -> Vec<&str> {
    line.trim_start()
        .trim_start_matches("$ ")
        .split_ascii_whitespace()
        .take_while(|word| !word.starts_with('#'))
        .collect()
}

/// Whether a `cargo xtask` line is one that we would take; other lines are fine.
fn parse_command(line: &str) -> Result<(), String> {
    let words = shell_words(line);
    if !words.starts_with(&["cargo", "xtask"]) {
        return Ok(());
    }
    let command = words.join(" ");
    let refused = |error: String| format!("`{command}` is refused: {error}");
    let cli = Cli::try_parse_from(["xtask"].into_iter().chain(words.into_iter().skip(2)))
        .map_err(|error| refused(error.kind().to_string()))?;
    match cli.task {
        Task::Test { groups: names, .. } => {
            suite::choose(groups::all(), &names).map_err(|error| refused(error.to_string()))?;
        }
        Task::Clients(options) => {
            clients::choose(clients::all(), options.names()).map_err(|error| refused(error.to_string()))?;
        }
        Task::Demo { .. } | Task::Soak { .. } | Task::Wheel | Task::Bench { .. } => {}
    }
    Ok(())
}

/// `[label](target)` and `src="target"` in a line.
fn links(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let target = line[at + 2..].split(')').next().unwrap_or_default();
        let label = line[..at].rfind('[').map_or("", |start| &line[start + 1..at]);
        found.push((label, target));
    }
    for mark in ["src=\"", "srcset=\""] {
        for (at, _) in line.match_indices(mark) {
            let target = line[at + mark.len()..].split('"').next().unwrap_or_default();
            found.push(("", target));
        }
    }
    found
}

/// Pages in docs/ that its index does not link to.
fn unlisted(index: &str, pages: &[PathBuf]) -> Vec<String> {
    pages
        .iter()
        .filter(|page| page.parent().is_some_and(|dir| dir.ends_with("docs")))
        .filter_map(|page| page.file_name()?.to_str())
        .filter(|name| *name != "README.md" && !index.contains(&format!("]({name})")))
        .map(|name| format!("{name} is not listed"))
        .collect()
}

#[cfg(test)]
mod tests;
