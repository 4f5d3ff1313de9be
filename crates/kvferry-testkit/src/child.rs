//! A worker process of the harness: an agent with memory, that does what its standard input says and answers on its standard
//! output.

use std::{
    io::{BufRead, Write},
    process::ExitCode,
    sync::Arc,
};

use serde_json::Value;

use crate::harness::{Answer, Envelope, Exit, Failure, Request, now_ns, sleep_until};

mod confine;
mod fork;
mod holdings;
mod memory;
mod post;
mod serve;
mod trap;
mod withheld;
mod world;

use world::World;

/// What a request comes to.
type Outcome = Result<Value, Failure>;

/// The `main` of a worker. Returns when the harness asks for it or is gone.
pub fn main() -> ExitCode {
    // Without a harness nobody would end this process.
    confine::die_with_parent();
    trap::install();
    if let Err(error) = kvferry::init_logging() {
        eprintln!("{error}");
    }
    let world = Arc::new(World::default());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let envelope: Envelope = match serde_json::from_str(&line) {
            Ok(envelope) => envelope,
            Err(error) => {
                eprintln!("not a request: {error}: {line}");
                return ExitCode::FAILURE;
            }
        };
        match envelope.request {
            Request::Exit(Exit::Now) => std::process::exit(0),
            Request::Exit(Exit::Orderly) => break,
            _ if envelope.background => {
                let world = world.clone();
                std::thread::spawn(move || carry_out(&world, envelope));
            }
            _ => carry_out(&world, envelope),
        }
    }
    world.close();
    ExitCode::SUCCESS
}

fn carry_out(world: &World, envelope: Envelope) {
    if let Some(at) = envelope.at {
        sleep_until(at);
    }
    let outcome = world.serve(envelope.request);
    let answer = Answer { id: envelope.id, stamp: now_ns(), outcome };
    let mut line = serde_json::to_string(&answer).unwrap_or_default();
    line.push('\n');
    // Whole lines: several threads may answer. The harness may be gone.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn failure(code: &str, text: impl std::fmt::Display) -> Failure {
    Failure { code: code.to_owned(), text: text.to_string() }
}

/// A failure of the worker rather than of the engine.
fn broken(text: impl std::fmt::Display) -> Failure {
    failure("harness", text)
}

fn answer<T: serde::Serialize>(result: Result<T, Failure>) -> Outcome {
    serde_json::to_value(result?).map_err(broken)
}
