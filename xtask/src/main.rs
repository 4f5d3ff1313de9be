//! The project's tasks, run as `cargo xtask TASK`: each does its own set-up.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod clients;
mod demo;
mod groups;
mod junit;
mod libtest;
mod model;
mod pages;
mod process;
mod report;
mod soak;
mod startup;
mod suite;
mod wheel;
mod workspace;

use workspace::Workspace;

/// kvferry's tasks. Each does its whole set-up; downloads and builds go under target/.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Move a real model's KV cache from a prefill to a decode process and check every bit
    ///
    /// Fetches the model once, builds the demo and runs it. Everything after `demo` is the demo's
    /// own: try `cargo xtask demo --help`.
    #[command(disable_help_flag = true)]
    Demo {
        /// Arguments of kvferry-demo
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Play random rounds of cancel, kill, stop, restart and loss over both paths and check every byte
    ///
    /// Builds the soak and runs it: 5 minutes, unless `--minutes` says otherwise. Everything after `soak` is the soak's own: try
    /// `cargo xtask soak --help`.
    #[command(disable_help_flag = true)]
    Soak {
        /// Arguments of kvferry-soak
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Build the wheels of the Python packages into target/wheels
    Wheel,
    /// Measure what an engine pays before its first transfer, beside the stock nixl in the same run
    Bench {
        /// Import, agent, registration of 10,000 regions, their metadata's size and loading
        #[arg(long, required = true)]
        startup: bool,
    },
    /// Run real clients of nixl against the wheels, and print which of their modes work
    ///
    /// Builds both wheels, makes an environment for each client under target/clients/ (once: gigabytes of downloads), and
    /// runs its modes with kvferry in the place of nixl. The logs are target/clients/CLIENT/logs/MODE.log. The code is 1 if a
    /// run with kvferry fails.
    Clients(clients::Options),
    /// Run every check; the last line is `N passed, N failed`
    Test {
        /// Groups to run, in the suite's order; all of them if none is named
        groups: Vec<String>,
        /// List the groups and run nothing
        #[arg(long)]
        list: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let workspace = Workspace::find();
    let outcome = match cli.task {
        Task::Demo { args } => demo::exec(&workspace, &args),
        Task::Soak { args } => soak::exec(&workspace, &args),
        Task::Bench { .. } => startup::exec(&workspace),
        Task::Wheel => wheel::exec(&workspace),
        Task::Clients(options) => clients::exec(&workspace, &options),
        Task::Test { list: true, .. } => {
            print!("{}", suite::list(&groups::all()));
            Ok(ExitCode::SUCCESS)
        }
        Task::Test { groups, .. } => {
            suite::choose(groups::all(), &groups).map(|chosen| suite::run(&workspace, &chosen))
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
