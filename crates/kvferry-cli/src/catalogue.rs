//! `kvferry catalogue`: the records themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use kvferry_doctor::catalogue::{Catalogue, Entry};
use kvferry_doctor::dataset::{self, Envelope};
use kvferry_doctor::kind::Environment;
use kvferry_doctor::record::Record;
use kvferry_doctor::report;

use crate::{NONSENSE, output};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the records
    List {
        /// Only those of this repository, owner/name
        #[arg(long)]
        repo: Option<String>,
        /// Only those of this kind of cause
        #[arg(long)]
        kind: Option<String>,
    },
    /// Show one record
    Show {
        /// Its id, slug or code
        name: String,
        /// The record as it is stored
        #[arg(long)]
        json: bool,
    },
    /// Find records by id, code or words
    Search {
        /// The words, all of which must be there
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Check a data set: a record, an envelope, a folder, or one of these a line
    Validate {
        /// Files or folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Check a data set and store its records, one file each
    Import {
        /// File or folder
        path: PathBuf,
        /// Where to; `kvferry explain --catalogue` reads it
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
    /// Write records in the published schema, one a line
    Export(Export),
}

#[derive(clap::Args)]
pub(crate) struct Export {
    /// Ids, slugs or codes; all if none is given
    names: Vec<String>,
    /// The repository in which kvferry's own errors lie, owner/name
    #[arg(long, requires = "sha")]
    repo: Option<String>,
    /// The commit of that repository, 40 hex digits
    #[arg(long, requires = "repo")]
    sha: Option<String>,
    /// Wrap each record as the public data set does
    #[arg(long)]
    envelope: bool,
    /// The data set's version in the envelope; now if not given
    #[arg(long, value_name = "TIME", requires = "envelope")]
    dataset_version: Option<String>,
    /// Write errors/ID.json below this folder instead of lines
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let catalogue = Catalogue::built_in();
    match command {
        Command::List { repo, kind } => {
            let wanted = |entry: &&Entry| {
                repo.as_ref().is_none_or(|repo| entry.record.repo == *repo)
                    && kind.as_ref().is_none_or(|kind| entry.side.kind.as_ref() == Some(kind))
            };
            let entries: Vec<_> = catalogue.entries().iter().filter(wanted).collect();
            output::print(&list(&entries))?;
            Ok(if entries.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Command::Show { name, json } => show(catalogue, &name, json),
        Command::Search { words } => {
            let hits = catalogue.search(&words.join(" "));
            output::print(&list(&hits.iter().map(|hit| hit.entry).collect::<Vec<_>>()))?;
            Ok(if hits.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Command::Validate { paths } => validate(&paths),
        Command::Import { path, into } => import(&path, &into),
        Command::Export(args) => export(catalogue, &args),
    }
}

fn list(entries: &[&Entry]) -> String {
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            let record = &entry.record;
            [
                record.id.as_str(),
                entry.side.kind.as_deref().unwrap_or("-"),
                record.repo.as_str(),
                record.slug.as_str(),
            ]
        })
        .collect();
    output::columns(&rows)
}

fn show(catalogue: &Catalogue, name: &str, json: bool) -> Result<ExitCode> {
    let Some(entry) = catalogue.find(name) else {
        output::complain(&format!(
            "error: no record has the id, slug or code {name:?}; `kvferry catalogue search` finds by words"
        ));
        return Ok(ExitCode::from(NONSENSE));
    };
    if json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&entry.record)?))?;
    } else {
        output::print(&report::record(entry, catalogue, Environment::detect()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn validate(paths: &[PathBuf]) -> Result<ExitCode> {
    let (mut records, mut faults) = (0, 0);
    for path in paths {
        let (found, errors) = dataset::read(path);
        for error in &errors {
            output::complain(&error.to_string());
        }
        records += found.len();
        faults += errors.len();
    }
    output::print(&format!("{records} records, {faults} errors\n"))?;
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn import(path: &Path, into: &Path) -> Result<ExitCode> {
    let (found, errors) = dataset::read(path);
    if !errors.is_empty() {
        for error in &errors {
            output::complain(&error.to_string());
        }
        output::complain("error: nothing was stored");
        return Ok(ExitCode::FAILURE);
    }
    for one in &found {
        // The schema's checks leave nothing in these two that could lead out of the folder.
        let folder = into.join(one.record.repo.replace('/', "-"));
        fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
        let file = folder.join(format!("{}.json", one.record.slug));
        let text = format!("{}\n", serde_json::to_string_pretty(&one.record)?);
        fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))?;
    }
    output::print(&format!("{} records in {}\n", found.len(), into.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn export(catalogue: &Catalogue, args: &Export) -> Result<ExitCode> {
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &args.names {
        let Some(entry) = catalogue.find(name) else {
            output::complain(&format!("error: no record has the id, slug or code {name:?}"));
            return Ok(ExitCode::from(NONSENSE));
        };
        entries.push(entry);
    }
    if args.names.is_empty() {
        entries.extend(catalogue.entries());
    }
    let mut left_out = 0;
    let mut records = Vec::new();
    for entry in entries {
        match (&args.repo, &args.sha) {
            (Some(repo), Some(sha)) => records.push(catalogue.located(&entry.record, repo, sha)),
            _ if entry.record.is_own() => left_out += 1,
            _ => records.push(entry.record.clone()),
        }
    }
    if let Some(fault) = records.iter().flat_map(kvferry_doctor::record::check).next() {
        output::complain(&format!("error: {fault}"));
        return Ok(ExitCode::from(NONSENSE));
    }
    write(args, &records)?;
    if left_out > 0 {
        output::complain(&format!(
            "{left_out} records of kvferry itself need --repo and --sha; they were left out"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(args: &Export, records: &[Record]) -> Result<()> {
    let version = args.dataset_version.clone().unwrap_or_else(now);
    let line = |record: &Record| {
        if args.envelope {
            serde_json::to_string(&Envelope { record: record.clone(), dataset_version: version.clone() })
        } else {
            serde_json::to_string(record)
        }
    };
    let Some(out) = &args.out else {
        for record in records {
            output::print(&format!("{}\n", line(record)?))?;
        }
        return Ok(());
    };
    let folder = out.join("errors");
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    for record in records {
        let file = folder.join(format!("{}.json", record.id));
        fs::write(&file, line(record)?).with_context(|| format!("can't write {}", file.display()))?;
    }
    output::print(&format!("{} records in {}\n", records.len(), folder.display()))
}

/// This moment as the schema writes times: ISO 8601 in UTC, milliseconds.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_787), (2026, 11, 30));
        assert_eq!(now().len(), "2026-08-28T06:17:29.519Z".len());
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = Export {
            names: Vec::new(),
            repo: Some("owner/name".to_owned()),
            sha: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            envelope: true,
            dataset_version: None,
            out: Some(folder.path().to_owned()),
        };
        let catalogue = Catalogue::built_in();
        assert_eq!(export(catalogue, &args).expect("written"), ExitCode::SUCCESS);
        let into = folder.path().join("own");
        assert_eq!(import(&folder.path().join("errors"), &into).expect("stored"), ExitCode::SUCCESS);
        let (found, errors) = dataset::read(&into);
        assert_eq!(errors, []);
        assert_eq!(found.len(), catalogue.entries().len());
    }
}
