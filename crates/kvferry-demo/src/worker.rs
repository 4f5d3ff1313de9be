//! A child process of the demo: one model, one set of pools, one part to play.

mod alone;
mod decode;
mod prefill;

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::control::{Order, Report, Role};
use crate::ferry::Happening;
use crate::model::Model;
use crate::weights::Weights;

/// Runs a worker until the parent has no more orders.
pub(crate) fn run(role: Role) -> Result<()> {
    // The parent passes on the last line of standard error: make a panic one line too.
    std::panic::set_hook(Box::new(|panic| eprintln!("{}", panic.to_string().replace('\n', " "))));
    die_with_parent()?;
    let (inputs, inbox) = channel();
    let listener = inputs.clone();
    std::thread::Builder::new().name("orders".into()).spawn(move || listen(&listener))?;
    let Input::Order(Order::Setup(setup)) = inbox.recv()? else {
        bail!("the first order must be the set-up: this role is started by kvferry-demo itself");
    };
    let desk = Desk { inbox, inputs, voice: Voice::default() };
    if setup.hang {
        desk.hang();
    }
    let model = Model::new(Weights::load(&setup.source)?)?;
    match role {
        Role::Prefill => prefill::run(&setup, &model, &desk),
        Role::Decode => decode::run(&setup, &model, &desk),
        Role::Alone => alone::run(&setup, &model, &desk),
    }
}

/// What may wake a worker.
pub(crate) enum Input {
    /// The parent wants something.
    Order(Order),
    /// The agent has something to tell.
    Happening(Happening),
    /// The parent said what this worker does not understand.
    Garbled(String),
}

/// Where a worker's inputs come in and its reports go out.
struct Desk {
    inbox: Receiver<Input>,
    inputs: Sender<Input>,
    voice: Voice,
}

impl Desk {
    /// The next input, waited for. The parent bounds the wait: it kills a worker that is late.
    fn next(&self) -> Result<Input> {
        match self.inbox.recv()? {
            Input::Garbled(error) => bail!("cannot read an order: {error}"),
            input => Ok(input),
        }
    }

    /// The next input, if there is one already.
    fn poll(&self) -> Result<Option<Input>> {
        match self.inbox.try_recv() {
            Ok(Input::Garbled(error)) => bail!("cannot read an order: {error}"),
            Ok(input) => Ok(Some(input)),
            Err(_) => Ok(None),
        }
    }

    fn hang(&self) -> ! {
        loop {
            std::thread::park();
        }
    }
}

/// The way to the parent, shared by the threads of a worker.
#[derive(Clone, Default)]
pub(crate) struct Voice(Arc<Mutex<()>>);

impl Voice {
    /// Sends one line.
    pub(crate) fn say(&self, report: &Report) -> Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        let _turn = self.0.lock().unwrap_or_else(|poison| poison.into_inner());
        let mut out = std::io::stdout().lock();
        out.write_all(&line).and_then(|()| out.flush()).context("the parent does not listen any more")
    }
}

fn listen(inputs: &Sender<Input>) {
    for line in std::io::stdin().lock().lines() {
        let order = line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?));
        let (input, last) = match order {
            Ok(order) => (Input::Order(order), false),
            // The worker says what is wrong and ends: nothing more is of interest.
            Err(error) => (Input::Garbled(error.to_string()), true),
        };
        if inputs.send(input).is_err() || last {
            return;
        }
    }
    // The parent keeps the pipe open until the worker has ended: it is gone.
    std::process::exit(1);
}

/// Asks the kernel to end this process with its parent, which alone can tell what it is for.
fn die_with_parent() -> Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        bail!("the parent process is gone");
    }
    Ok(())
}
