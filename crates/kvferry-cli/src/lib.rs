//! The `kvferry` command: arguments in, text out. What it shows comes from the library.
//!
//! It is a library so that the Python package can offer the same command.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod catalogue;
mod codes;
mod demo;
mod explain;
mod output;
mod probe;
mod program;
mod settings;

/// Exit code of a call that asks for something that there is not.
const NONSENSE: u8 = 2;

/// Moves the KV cache of language models between processes.
///
/// Settings come from the environment: `kvferry settings` lists them.
#[derive(Parser)]
#[command(name = "kvferry", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move a real model's KV cache from a prefill to a decode process
    ///
    /// Runs kvferry-demo, which is found beside this program or on PATH. Everything after `demo` is
    /// handed on to it: try `kvferry demo --help`.
    #[command(disable_help_flag = true)]
    Demo {
        /// Arguments of kvferry-demo
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Show each setting, its value and where that comes from
    Settings,
    /// List the error codes, or explain one
    Codes {
        /// A code such as register.unmapped, or a family of codes such as register
        code: Option<String>,
    },
    /// Say what logs or a message mean: the cause, whose side, how to mend it, how to verify that
    ///
    /// Exit code 0: something was found, 1: nothing was found, 2: bad usage.
    Explain(explain::Args),
    /// Look into the catalogue of errors around KV-cache transfer
    #[command(subcommand)]
    Catalogue(catalogue::Command),
    /// Move bytes between two processes of this host and show how fast, or what forbids it
    Probe(probe::Args),
    /// One of the two processes of a probe
    #[command(hide = true)]
    ProbeSide(probe::SideArgs),
    /// Measure transfers between two processes, each beside the raw loop of the same mechanism
    Bench(bench::Args),
    /// The far process of a bench
    #[command(hide = true)]
    BenchSide,
}

/// Runs the command with these arguments, the program's name first.
///
/// Some tasks start this same command once more; `program` is how, if it is not this process's own file.
pub fn run(args: impl IntoIterator<Item = OsString>, program: Option<Vec<OsString>>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(NONSENSE) } else { ExitCode::SUCCESS };
        }
    };
    if let Some(program) = program {
        program::set(program);
    }
    let outcome = match cli.command {
        Command::Demo { args } => demo::exec(&args),
        Command::Settings => settings::show(),
        Command::Codes { code } => codes::show(code.as_deref()),
        Command::Explain(args) => explain::run(&args),
        Command::Catalogue(command) => catalogue::run(command),
        Command::Probe(args) => probe::run(&args),
        Command::ProbeSide(args) => probe::side(&args),
        Command::Bench(args) => bench::run(args),
        Command::BenchSide => bench::side(),
    };
    outcome.unwrap_or_else(|error| {
        output::complain(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}
