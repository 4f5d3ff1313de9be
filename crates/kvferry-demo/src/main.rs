//! The main job of kvferry on a real language model: the KV cache of a prompt crosses from a
//! prefill process to a decode process, and nothing changes on the way.

mod block_table;
mod chat;
mod child;
mod cli;
mod conductor;
mod control;
mod ferry;
mod memory;
mod model;
mod outcome;
mod paths;
mod plan;
mod pools;
mod rng;
mod sequence;
mod shape;
mod show;
mod stamp;
mod table;
mod timeline;
mod tokenizer;
mod verify;
mod weights;
mod worker;

#[cfg(test)]
mod smollm2_tests;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Worker};
use crate::plan::{Misuse, Plan};

/// A run that found a difference or could not be completed.
const FAILED: u8 = 1;
/// A command line or setting that makes no sense.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.worker {
        Some(Worker::Worker { role }) => worker::run(role).map(|()| true),
        None => Plan::new(&cli).and_then(|plan| conductor::run(&plan)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => FAILED.into(),
        Err(error) if closed_pipe(&error) => FAILED.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            let misused = error.downcast_ref::<Misuse>().is_some();
            if misused { MISUSED } else { FAILED }.into()
        }
    }
}

/// Whether the reader of our output has gone, as `head` does: nothing to complain of.
fn closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
