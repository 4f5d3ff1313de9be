//! All processes, the time, and what goes wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use kvferry_proto::{Identity, Incarnation, RegionId};

use crate::bug::Bug;
use crate::ledger::{Ledger, Seen};
use crate::net::{COPIERS, Conn, Page};
use crate::process::Process;
use crate::rng::Rng;

/// Bytes that a target keeps for one initiator's notifications.
pub(crate) const INBOX: u64 = 600;

/// How long a call waits before it answers busy, in microseconds.
pub(crate) const PATIENCE: u64 = 100_000;

/// How long a death stays unnoticed.
pub(crate) const DEATH_NOTICE: u64 = 300;

/// After the end of each schedule.
pub(crate) const FOREVER: u64 = 3_600_000_000;

/// How long everything may take to come to rest when nothing goes wrong any more.
const REST: u64 = 2_000_000;

/// Metadata as it lies around in a directory.
#[derive(Clone)]
pub(crate) struct Blob {
    pub(crate) identity: Identity,
    pub(crate) generation: u64,
    pub(crate) partial: bool,
    pub(crate) regions: Vec<RegionId>,
}

/// Who takes the next step. Its order decides between steps at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Control(usize),
    Copier(usize, usize),
    App(usize),
    Trouble,
    /// An agent of this name starts.
    Start(usize),
}

pub(crate) struct World {
    /// Microseconds.
    pub(crate) now: u64,
    pub(crate) base: Instant,
    pub(crate) rng: Rng,
    pub(crate) bug: Bug,
    pub(crate) ledger: Ledger,
    pub(crate) names: Vec<String>,
    pub(crate) procs: Vec<Process>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) pages: Vec<Page>,
    pub(crate) blobs: Vec<Blob>,
    /// Silence for this long is death, in some schedules.
    pub(crate) silence: Option<Duration>,
    /// Nothing goes wrong any more, and nothing new begins.
    pub(crate) calm: bool,
    agenda: BinaryHeap<Reverse<(u64, Actor)>>,
    /// One in so many steps is late by milliseconds; large for smooth schedules.
    roughness: u64,
}

impl World {
    fn new(seed: u64, bug: Bug) -> Self {
        let mut rng = Rng::new(seed);
        let names = (0..rng.range(2, 4)).map(|n| format!("agent-{n}")).collect();
        let silence = rng.once_in(3).then(|| Duration::from_millis(60));
        let roughness = rng.range(3, 40);
        Self {
            now: 0,
            base: Instant::now(),
            rng,
            bug,
            ledger: Ledger::default(),
            names,
            procs: Vec::new(),
            conns: Vec::new(),
            pages: Vec::new(),
            blobs: Vec::new(),
            silence,
            calm: false,
            agenda: BinaryHeap::new(),
            roughness,
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        self.base + Duration::from_micros(self.now)
    }

    /// The process that lives under this name.
    pub(crate) fn living(&self, name: &str) -> Option<usize> {
        self.procs.iter().position(|process| process.is_alive() && process.identity.name == name)
    }

    fn start(&mut self, name: usize) {
        let identity =
            Identity { name: self.names[name].clone(), incarnation: Incarnation(self.rng.bytes()) };
        let pid = self.procs.len();
        let secret = self.rng.bytes();
        self.procs.push(Process::new(identity, secret));
        self.schedule(Actor::Control(pid), 10);
        self.schedule(Actor::App(pid), 50);
        for k in 0..COPIERS {
            self.schedule(Actor::Copier(pid, k), 10);
        }
    }

    fn schedule(&mut self, actor: Actor, delay: u64) {
        self.agenda.push(Reverse((self.now + delay, actor)));
    }

    /// Runs the next step.
    fn step(&mut self) {
        let Some(Reverse((at, actor))) = self.agenda.pop() else {
            return;
        };
        self.now = at;
        self.ledger.seen.steps += 1;
        let pid = match actor {
            Actor::Control(pid) | Actor::Copier(pid, _) | Actor::App(pid) => pid,
            Actor::Trouble => return self.trouble(),
            Actor::Start(name) => return self.start(name),
        };
        let process = &self.procs[pid];
        if !process.is_alive() {
            return;
        }
        if process.stopped_until > self.now {
            let wait = process.stopped_until - self.now;
            return self.schedule(actor, wait);
        }
        let did = match actor {
            Actor::Control(pid) => self.step_control(pid),
            Actor::Copier(pid, k) => self.step_copier(pid, k),
            _ => self.step_app(pid),
        };
        let rough = self.rng.once_in(self.roughness);
        let delay = match actor {
            Actor::App(_) => self.rng.range(300, 2500),
            _ if rough => self.rng.range(100, 3000),
            _ if did => self.rng.range(5, 100),
            _ => self.rng.range(200, 900),
        };
        self.schedule(actor, delay);
    }

    fn trouble(&mut self) {
        if self.calm {
            return;
        }
        let alive: Vec<usize> = (0..self.procs.len()).filter(|&pid| self.procs[pid].is_alive()).collect();
        let victim = self.rng.pick(&alive);
        match (self.rng.range(0, 10), victim) {
            (0..2, Some(pid)) => self.kill(pid),
            (2..5, Some(pid)) => {
                let until = self.now + self.rng.range(1000, 160_000);
                let now = self.now;
                let process = &mut self.procs[pid];
                process.stopped_until = until;
                process.stops.push((now, until));
            }
            _ => {
                let open: Vec<usize> =
                    (0..self.conns.len()).filter(|&at| !self.conns[at].closed.contains(&true)).collect();
                if let Some(conn) = self.rng.pick(&open) {
                    self.conns[conn].broken = true;
                }
            }
        }
        let next = self.rng.range(2_000, 60_000);
        self.schedule(Actor::Trouble, next);
    }

    fn kill(&mut self, pid: usize) {
        self.ledger.seen.deaths += 1;
        let process = &mut self.procs[pid];
        process.died_at = Some(self.now);
        for link in &process.links {
            self.conns[link.conn].closed[link.side] = true;
        }
        let name = self.names.iter().position(|name| *name == self.procs[pid].identity.name);
        let delay = self.rng.range(50, 30_000);
        self.schedule(Actor::Start(name.expect("all agents have names")), delay);
    }

    /// Whether nothing is under way any more.
    fn is_at_rest(&self) -> bool {
        self.procs.iter().filter(|process| process.is_alive()).all(|process| {
            let transfers = process.transfers.iter();
            let links = process.links.iter();
            process.stopped_until <= self.now
                && process.waiting.is_empty()
                && process.inbox.is_empty()
                && process.peers.values().all(|peer| peer.reconnect_at.is_none())
                && transfers.clone().all(|transfer| transfer.phase.is_final() && transfer.inflight == 0)
                && links.clone().all(|link| link.revocations.is_quiet() && link.to_apply.is_empty())
                && links.clone().all(|link| if link.session.is_some() { link.up } else { link.retired })
        })
    }

    fn what_hangs(&self) -> String {
        let mut hangs = Vec::new();
        for (pid, process) in self.procs.iter().enumerate().filter(|(_, process)| process.is_alive()) {
            for (at, transfer) in process.transfers.iter().enumerate() {
                if !transfer.phase.is_final() || transfer.inflight > 0 {
                    hangs.push(format!("transfer {at} of process {pid}: {:?}", transfer.phase));
                }
            }
            for (li, link) in process.links.iter().enumerate() {
                let (up, over) = (link.up, link.session.is_none());
                if !link.revocations.is_quiet() || !(up || link.retired) {
                    hangs.push(format!("link {li} of process {pid}: up {up}, over {over}"));
                }
            }
            let to_apply: usize = process.links.iter().map(|link| link.to_apply.len()).sum();
            let (calls, held) = (process.waiting.len(), process.inbox.len());
            let reconnects = process.peers.values().filter(|peer| peer.reconnect_at.is_some()).count();
            if calls + held + reconnects + to_apply > 0 {
                hangs.push(format!(
                    "process {pid}: {calls} calls, {held} notifications, {reconnects} reconnects, {to_apply} revocations"
                ));
            }
        }
        format!("still under way at the end: {}", hangs.join("; "))
    }
}

/// Runs the schedule of `seed`; says what was seen, or which promise was broken.
pub(crate) fn run(seed: u64, bug: Bug) -> Result<Seen, String> {
    let mut world = World::new(seed, bug);
    for name in 0..world.names.len() {
        world.start(name);
    }
    world.schedule(Actor::Trouble, 20_000);
    let trouble_ends = world.rng.range(60_000, 220_000);
    while world.now < trouble_ends && world.ledger.violation().is_none() {
        world.step();
    }
    world.calm = true;
    let mut checked = 0;
    while world.ledger.violation().is_none() {
        world.step();
        checked += 1;
        // Delivery of bare notifications is judged some time after the last frame was sent.
        if checked % 64 == 0 && world.is_at_rest() {
            break;
        }
        if world.now > trouble_ends + REST {
            let what = world.what_hangs();
            world.ledger.broken(what);
        }
    }
    let settled = world.now + 40_000;
    while world.now < settled && world.ledger.violation().is_none() {
        world.step();
    }
    let World { procs, ledger, .. } = &mut world;
    ledger.check_bare(
        |pid| procs[pid].is_alive(),
        |to| procs.iter().any(|process| process.is_alive() && process.identity == *to),
    );
    match ledger.violation() {
        Some(violation) => Err(violation.to_owned()),
        None => Ok(ledger.seen),
    }
}
