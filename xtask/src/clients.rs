//! `cargo xtask clients`: real, unmodified clients of nixl, each in an environment of its own, beside the wheels just built.
//!
//! # Adding a client
//!
//! A family of clients is a file under `clients/`, with a function that describes each of its clients, listed in [`all`]:
//!
//! ```text
//! pub(super) fn client() -> Client {
//!     Client {
//!         name: "example",                 // cargo xtask clients example; target/clients/example/
//!         title: "Example",
//!         version: "1.2.3",
//!         packages: vec![
//!             Packages::Whole(&["torch==2.13.0"]),       // with what it depends on
//!             Packages::Alone(&["example==1.2.3"]),      // without
//!             Packages::File("example-requirements.txt") // of the clients' directory, without; lines of nixl are left out
//!             Packages::OwnFile("example.txt")           // the same of python/clients
//!         ],
//!         prepare: None,                   // or Prepare { revision, run }: once, when the environment is made
//!         modes: both_paths(vec![Mode::new("plain", Program::Own("example_loop.py")).args(&["--config", "{clients}/x"])]),
//!     }
//! }
//! ```
//!
//! A mode is one run of one program. It is good when a line of its output is the mode's verdict (`RESULT PASS`) and, with
//! kvferry, it exits with 0; the stock package kills its process at exit on a machine without a GPU, so there the line
//! alone counts. A program that finds that it can't do its work on this machine says `RESULT SKIP: why`. Programs of the clients' directory are run where they lie ([`Program::Shared`]); those of the project are
//! in `python/clients` ([`Program::Own`]). Which `nixl` they meet is the environment's, and none of their business.
//!
//! Arguments, variables and directories may hold `{clients}` (the clients' directory), `{environment}` (the client's
//! environment), `{root}` (the project) and `{work}` (an empty directory for this run, where it also starts).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process;
use crate::wheel::{self, Wheels};
use crate::workspace::Workspace;

mod environment;
mod others;
mod run;
mod servers;
mod sglang;
mod table;
mod vllm;

pub(crate) use environment::Setup;
use run::Verdict;
use table::Row;

/// Longest that a run may take, unless its mode says otherwise.
const LIMIT: Duration = Duration::from_secs(6 * 60);

/// Where the project's own programs and lists of packages lie.
const OWN: &str = "python/clients";

/// Every client, in the table's order.
pub(crate) fn all() -> Vec<Client> {
    vec![
        sglang::client(),
        sglang::with_notifications(),
        vllm::client(),
        servers::client(),
        others::lmcache(),
        others::ray(),
        others::dynamo(),
        others::tensorrt_llm(),
    ]
}

/// A program that is not ours, in one version, and the ways in which it is run.
#[derive(Clone)]
pub(crate) struct Client {
    /// On the command line, and under `target/clients/`.
    pub(crate) name: &'static str,
    /// In the table.
    pub(crate) title: &'static str,
    /// In the table.
    pub(crate) version: &'static str,
    /// What its environment holds beside a `nixl`, installed in this order.
    pub(crate) packages: Vec<Packages>,
    /// What else its environment needs.
    pub(crate) prepare: Option<Prepare>,
    /// In the table's order.
    pub(crate) modes: Vec<Mode>,
}

/// Packages that are installed in one go, versions and all.
#[derive(Clone)]
pub(crate) enum Packages {
    /// The lines of a requirements file of the clients' directory, without what they depend on.
    File(&'static str),
    /// The same of a file of `python/clients`.
    OwnFile(&'static str),
    /// These, without what they depend on.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    Alone(&'static [&'static str]),
    /// These, and what they depend on.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    Whole(&'static [&'static str]),
}

/// A step in Rust, once the packages are there. It is done again when the packages or the revision change.
#[derive(Clone, Copy)]
pub(crate) struct Prepare {
    /// Counts the changes of what the step does.
    pub(crate) revision: u32,
    /// May install more and write files; what it leaves must lie in the environment.
    pub(crate) run: fn(&Setup<'_>) -> Result<()>,
}

/// What a mode runs, with the environment's Python.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// A file of the clients' directory.
    Shared(&'static str),
    /// A file of `python/clients`.
    Own(&'static str),
    /// Nothing: the text says why not. Such a row never fails.
    #[allow(dead_code, reason = "for clients that no machine here can run")]
    Missing(&'static str),
}

/// One way to run a client.
#[derive(Clone)]
pub(crate) struct Mode {
    name: String,
    program: Program,
    args: Vec<String>,
    directory: Option<String>,
    limit: Duration,
    verdict: &'static str,
    variables: Vec<(String, String)>,
    ours: Vec<(String, String)>,
    stock: Vec<(String, String)>,
}

impl Mode {
    pub(crate) fn new(name: &str, program: Program) -> Self {
        Self {
            name: name.to_owned(),
            program,
            args: Vec::new(),
            directory: None,
            limit: LIMIT,
            verdict: "RESULT PASS",
            variables: Vec::new(),
            ours: Vec::new(),
            stock: Vec::new(),
        }
    }

    /// Arguments of the program.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Where it runs, instead of in `{work}`.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    pub(crate) fn directory(mut self, directory: &str) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Kills it, and all that it started, after so many seconds.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    pub(crate) fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// The whole line of standard output by which it says that all was well.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    pub(crate) fn verdict(mut self, line: &'static str) -> Self {
        self.verdict = line;
        self
    }

    /// Sets a variable of its environment, whoever owns `nixl`.
    #[allow(dead_code, reason = "not every family of clients needs it")]
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same mode under the name `NAME-tcp`, kept off the path between processes of one host.
    pub(crate) fn over_tcp(&self) -> Self {
        let mut mode = self.clone();
        mode.name += "-tcp";
        mode.ours.push(("KVFERRY_FORBID".to_owned(), "same_host".to_owned()));
        mode.stock.push(("UCX_TLS".to_owned(), "tcp,self".to_owned()));
        mode
    }
}

/// Each of these modes, and behind it the same over TCP.
pub(crate) fn both_paths(modes: Vec<Mode>) -> Vec<Mode> {
    let pair = |mode: Mode| {
        let tcp = mode.over_tcp();
        [mode, tcp]
    };
    modes.into_iter().flat_map(pair).collect()
}

/// Whose `nixl` a run meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Ours,
    Stock,
}

impl Owner {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "kvferry",
            Self::Stock => "stock",
        }
    }
}

/// What the command line asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Clients to run, as CLIENT or CLIENT/MODE; all of them if none is named
    names: Vec<String>,
    /// Where the clients' programs and requirements lie [default: shared/clients beside the project]
    #[arg(long, value_name = "DIR")]
    clients_dir: Option<PathBuf>,
    /// Run each mode with the stock package too, in an environment without kvferry
    #[arg(long)]
    stock: bool,
    /// Write the table into FILE: a new one, or the rows of these clients in a page that has the table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Use the two wheels in DIR instead of building them
    #[arg(long, value_name = "DIR")]
    wheels: Option<PathBuf>,
    /// List the clients and their modes and run nothing
    #[arg(long)]
    list: bool,
}

impl Options {
    /// The clients and modes that were named.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

/// Runs what was asked for and prints the table; the code is 1 if a run with kvferry failed.
pub(crate) fn exec(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let known = all();
    let chosen = choose(known.clone(), &options.names)?;
    if options.list {
        print!("{}", list(&chosen));
        return Ok(ExitCode::SUCCESS);
    }
    let clients = clients_dir(workspace, options.clients_dir.as_deref(), &chosen)?;
    process::adopt_orphans().context("can't take in orphaned processes")?;
    process::end_with_descendants().context("can't listen for signals")?;
    let wheels = match &options.wheels {
        Some(dir) => wheel::in_dir(dir)?,
        None => wheel::build(workspace)?,
    };
    let mut rows = Vec::new();
    for client in &chosen {
        rows.extend(run_client(workspace, client, &clients, &wheels, options.stock)?);
    }
    println!("\n{}", table::render(&rows));
    if let Some(file) = &options.markdown {
        let whole: Vec<_> = chosen
            .iter()
            .filter(|client| {
                known.iter().any(|all| all.name == client.name && all.modes.len() == client.modes.len())
            })
            .map(|client| [client.title, client.version])
            .collect();
        let page = match fs::read_to_string(file) {
            Ok(page) => table::put(&page, &rows, &whole).with_context(|| format!("{}", file.display()))?,
            Err(_) => table::render(&rows),
        };
        fs::write(file, page).with_context(|| format!("can't write {}", file.display()))?;
    }
    let failed = rows.iter().filter(|row| row.failed()).count();
    println!("{} passed, {failed} failed", rows.iter().filter(|row| row.passed()).count());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The clients and modes with these names, in their order; all of them if no name is given.
///
/// # Errors
/// A name is not known.
pub(crate) fn choose(known: Vec<Client>, names: &[String]) -> Result<Vec<Client>> {
    if names.is_empty() {
        return Ok(known);
    }
    let mut wanted = BTreeSet::new();
    for name in names {
        let (client, mode) = name.split_once('/').map_or((name.as_str(), None), |(a, b)| (a, Some(b)));
        let Some(found) = known.iter().find(|one| one.name == client) else {
            let names: Vec<_> = known.iter().map(|client| client.name).collect();
            bail!("no client is called {client:?}; there are {}", names.join(", "));
        };
        let modes: Vec<_> = found.modes.iter().map(|mode| mode.name.as_str()).collect();
        ensure!(
            mode.is_none_or(|mode| modes.contains(&mode)),
            "{client} has no mode {:?}; there are {}",
            mode.unwrap_or_default(),
            modes.join(", ")
        );
        wanted.extend(
            modes
                .iter()
                .filter(|one| mode.is_none_or(|mode| mode == **one))
                .map(|mode| format!("{client}/{mode}")),
        );
    }
    let mut chosen = known;
    for client in &mut chosen {
        let name = client.name;
        client.modes.retain(|mode| wanted.contains(&format!("{name}/{}", mode.name)));
    }
    chosen.retain(|client| !client.modes.is_empty());
    Ok(chosen)
}

/// Each client and what it runs, a line each.
fn list(clients: &[Client]) -> String {
    let modes = |client: &Client| {
        let names = client.modes.iter().map(|mode| format!("  {}/{}\n", client.name, mode.name));
        names.collect::<String>()
    };
    clients.iter().map(|client| format!("{} {}\n{}", client.title, client.version, modes(client))).collect()
}

/// The directory of the clients' programs.
///
/// # Errors
/// It is not there, or lacks a file that one of these clients needs.
fn clients_dir(workspace: &Workspace, given: Option<&Path>, clients: &[Client]) -> Result<PathBuf> {
    let dir = match given {
        Some(dir) => dir.to_path_buf(),
        None => workspace.root.join("../shared/clients"),
    };
    let dir = dir.canonicalize().with_context(|| {
        format!("no clients' programs in {}; name their directory with --clients-dir", dir.display())
    })?;
    for client in clients {
        let files = client.packages.iter().filter_map(|packages| match packages {
            Packages::File(name) => Some(dir.join(name)),
            Packages::OwnFile(name) => Some(workspace.root.join(OWN).join(name)),
            _ => None,
        });
        let programs = client.modes.iter().filter_map(|mode| run::path(workspace, &dir, mode.program));
        for file in files.chain(programs) {
            ensure!(file.is_file(), "{} needs {}, which is not there", client.name, file.display());
        }
    }
    Ok(dir)
}

/// One client's rows.
fn run_client(
    workspace: &Workspace,
    client: &Client,
    clients: &Path,
    wheels: &Wheels,
    stock: bool,
) -> Result<Vec<Row>> {
    let runs = client.modes.iter().any(|mode| !matches!(mode.program, Program::Missing(_)));
    let ready = |owner| {
        let setup = Setup::new(workspace, client, clients, owner);
        setup
            .make(client, wheels)
            .with_context(|| format!("can't make the environment of {}", client.name))?;
        anyhow::Ok(setup)
    };
    let ours = if runs { Some(ready(Owner::Ours)?) } else { None };
    let stock = if runs && stock { Some(ready(Owner::Stock)?) } else { None };
    let mut rows = Vec::new();
    for mode in &client.modes {
        let verdict = |setup: &Option<Setup<'_>>| match (mode.program, setup) {
            (Program::Missing(why), _) => Ok((Verdict::NotRun(why.to_owned()), Duration::ZERO)),
            (_, Some(setup)) => {
                let ran = run::run(setup, client, mode);
                match process::end_orphans() {
                    0 => {}
                    left => println!("   {left} processes were left, and killed"),
                }
                ran
            }
            (_, None) => Ok((Verdict::Unknown, Duration::ZERO)),
        };
        let (ours, took) = verdict(&ours)?;
        let (stock, _) = verdict(&stock)?;
        rows.push(Row {
            client: client.title,
            version: client.version,
            mode: mode.name.clone(),
            stock,
            ours,
            took,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
