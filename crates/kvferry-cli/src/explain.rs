//! `kvferry explain`: logs or a message in, one primary cause out.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;
use kvferry_doctor::catalogue::Catalogue;
use kvferry_doctor::explain::Explainer;
use kvferry_doctor::kind::Environment;
use kvferry_doctor::{dataset, report};

use crate::{NONSENSE, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Log files, `-` for stdin, or a message, an error code or a record's id
    #[arg(required = true)]
    what: Vec<String>,
    /// Print JSON: primary, others, secondary, recovered
    #[arg(long)]
    json: bool,
    /// Where the process runs, which decides the commands; found out by itself if not given
    #[arg(long, value_enum)]
    env: Option<Env>,
    /// Records beside the built-in ones: a file or folder as `kvferry catalogue import` makes it
    #[arg(long, value_name = "PATH", env = "KVFERRY_CATALOGUE")]
    catalogue: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Env {
    Bare,
    Docker,
    K8s,
}

impl From<Env> for Environment {
    fn from(env: Env) -> Self {
        match env {
            Env::Bare => Self::Bare,
            Env::Docker => Self::Docker,
            Env::K8s => Self::K8s,
        }
    }
}

/// What the arguments name.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Logs: files, or stdin as `-`.
    Logs(Vec<String>),
    /// A message.
    Message(String),
    /// Something that is none of these.
    Nonsense(String),
}

/// Explains what was asked for; exit code 1 if nothing was found.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let environment = args.env.map_or_else(Environment::detect, Environment::from);
    let own;
    let explainer = match &args.catalogue {
        None => Explainer::built_in(),
        Some(path) => match with_records(path) {
            Ok(catalogue) => {
                own = Explainer::new(Arc::new(catalogue));
                &own
            }
            Err(complaint) => return Ok(refuse(&complaint)),
        },
    };
    // A code or id by itself asks for its record.
    if let [name] = args.what.as_slice()
        && let Some(entry) = explainer.catalogue().find(name)
        && !Path::new(name).exists()
        && !args.json
    {
        output::print(&report::record(entry, explainer.catalogue(), environment))?;
        return Ok(ExitCode::SUCCESS);
    }
    let explanation = match asked(&args.what) {
        Asked::Message(message) => explainer.text(&message),
        Asked::Nonsense(complaint) => return Ok(refuse(&complaint)),
        Asked::Logs(names) => {
            let mut inputs = Vec::new();
            for name in names {
                match open(&name) {
                    Ok(input) => inputs.push((if name == "-" { "stdin".to_owned() } else { name }, input)),
                    Err(error) => return Ok(refuse(&format!("{name}: {error}"))),
                }
            }
            match explainer.inputs(inputs) {
                Ok(explanation) => explanation,
                Err(error) => return Ok(refuse(&error.to_string())),
            }
        }
    };
    if args.json {
        let json = report::json(&explanation, explainer.catalogue(), environment);
        output::print(&format!("{}\n", serde_json::to_string_pretty(&json)?))?;
    } else {
        output::print(&report::text(&explanation, explainer.catalogue(), environment))?;
    }
    Ok(if explanation.is_found() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Files and stdin, or one message; a mixture of both is none.
fn asked(what: &[String]) -> Asked {
    let is_log = |name: &String| name == "-" || Path::new(name).exists();
    if what.iter().all(is_log) {
        return Asked::Logs(what.to_vec());
    }
    if let Some(missing) = what.iter().find(|name| !is_log(name) && looks_like_path(name)) {
        return Asked::Nonsense(format!("{missing}: there is no such file"));
    }
    if what.iter().any(is_log) && what.len() > 1 {
        return Asked::Nonsense("give either log files or a message".to_owned());
    }
    Asked::Message(what.join(" "))
}

/// A word with a slash, or with the ending of a log.
fn looks_like_path(name: &str) -> bool {
    let has_ending = [".log", ".txt", ".out", ".err", ".json"].iter().any(|ending| name.ends_with(ending));
    !name.contains(char::is_whitespace) && (name.contains('/') || has_ending)
}

fn open(name: &str) -> io::Result<Box<dyn Read>> {
    if name == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(name)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder"));
    }
    Ok(Box::new(file))
}

/// The built-in catalogue with the records of `path`.
pub(crate) fn with_records(path: &Path) -> Result<Catalogue, String> {
    let (found, errors) = dataset::read(path);
    if let Some(error) = errors.first() {
        return Err(error.to_string());
    }
    let mut catalogue = Catalogue::built_in().as_ref().clone();
    for one in found {
        catalogue.add(one.at, one.record, None);
    }
    Ok(catalogue)
}

fn refuse(complaint: &str) -> ExitCode {
    output::complain(&format!("error: {complaint}"));
    ExitCode::from(NONSENSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Asked {
        asked(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn files_messages_and_typing_errors_are_told_apart() {
        assert_eq!(of(&["-"]), Asked::Logs(vec!["-".to_owned()]));
        assert_eq!(of(&["Cargo.toml", "-"]), Asked::Logs(vec!["Cargo.toml".to_owned(), "-".to_owned()]));
        assert_eq!(of(&["NIXL_ERR_BACKEND"]), Asked::Message("NIXL_ERR_BACKEND".to_owned()));
        assert_eq!(of(&["ibv_reg_mr", "failed"]), Asked::Message("ibv_reg_mr failed".to_owned()));
        assert_eq!(of(&["cannot open /dev/gdrdrv"]), Asked::Message("cannot open /dev/gdrdrv".to_owned()));
        assert!(matches!(of(&["prefil.log"]), Asked::Nonsense(_)));
        assert!(matches!(of(&["logs/none"]), Asked::Nonsense(_)));
        assert!(matches!(of(&["Cargo.toml", "failed"]), Asked::Nonsense(_)));
    }
}
