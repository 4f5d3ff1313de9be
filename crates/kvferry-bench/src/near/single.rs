use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use kvferry::{Mechanism, Transfer};

use super::session::{Session, Stage, Turn, mechanism_of, move_once, turns};
use super::{Measured, RowError};
use crate::content::word_at;
use crate::layout::Layout;
use crate::message::{Ball, Plan, Request};
use crate::opposite::Peer;
use crate::options::BenchOp;
use crate::progress::Watch;
use crate::raw::{Lanes, ping};
use crate::row::{Limit, Measure};
use crate::samples::Times;

/// Transfers of a round.
const BATCH: u32 = 1_000;

/// One block, again and again: the time from post to done.
pub(super) fn measure(
    session: &Session<'_>,
    peer: &mut Peer,
    plan: Plan,
    watch: &mut dyn Watch,
) -> Result<Measured, RowError> {
    let layout = Layout::new(plan.shape, session.pool.len(), plan.seed);
    let stage = session.begin(peer, &plan)?;
    let transfer = session.transfer(&plan, &layout)?;
    let mechanism = mechanism_of(&transfer)?;
    let call = match mechanism {
        Mechanism::Stream => None,
        mechanism => Some(session.call(mechanism, &plan, &layout)?),
    };
    let block = Block::new(session, &plan, &layout, stage);
    let (mut times, mut limits) = (Times::new(), Times::new());
    let (mut cpu, mut fault) = (0.0, None);
    for round in 0..=session.options.rounds {
        let counted = round > 0;
        for turn in turns(round) {
            match (turn, &call) {
                (Turn::Engine, _) => {
                    let before = session.cpu_time(peer)?;
                    let found = block.engine(peer, &transfer, |took| {
                        if counted {
                            times.record(took);
                        }
                    })?;
                    if counted {
                        cpu += session.cpu_time(peer)? - before;
                    }
                    fault = fault.or(found);
                }
                (Turn::Raw, Some(call)) => block.raw(peer, call, |took| {
                    if counted {
                        limits.record(took);
                    }
                })?,
                (Turn::Raw, None) => block.ping_pong(peer, |took| {
                    if counted {
                        limits.record(took);
                    }
                })?,
            }
        }
        watch.step();
    }
    let fault = fault.map_or_else(|| block.stage.verify_gaps(peer), |fault| Ok(Some(fault)))?;
    let bytes = plan.shape.bytes() as f64 * f64::from(BATCH) * f64::from(session.options.rounds);
    Ok(Measured {
        mechanism: mechanism.to_string(),
        measure: Measure::Time { p50_us: times.microseconds(0.5), p99_us: times.microseconds(0.99) },
        limit: if call.is_some() { Limit::Call } else { Limit::PingPong },
        limit_median: limits.microseconds(0.5),
        cpu_s_per_gb: Some(cpu / (bytes / 1e9)),
        fault,
    })
}

/// The one block of the row.
struct Block<'s> {
    session: &'s Session<'s>,
    plan: Plan,
    /// Its offset in the near and in the far pool.
    near: u64,
    far: u64,
    stage: Stage<'s>,
}

impl<'s> Block<'s> {
    fn new(session: &'s Session<'_>, plan: &Plan, layout: &Layout, stage: Stage<'s>) -> Self {
        let first = |offsets: &[u64]| offsets.first().copied().unwrap_or_default();
        Self { session, plan: *plan, near: first(&layout.near), far: first(&layout.far), stage }
    }

    /// A batch of the engine's; returns the first difference.
    fn engine(
        &self,
        peer: &mut Peer,
        transfer: &Transfer,
        mut record: impl FnMut(Duration),
    ) -> Result<Option<String>, RowError> {
        let mut fault = None;
        for i in 0..BATCH {
            self.before(i)?;
            record(move_once(transfer)?);
            fault = fault.or(self.after()?);
        }
        let last = self.compare(peer, self.session.options.flip)?;
        Ok(fault.or(last))
    }

    /// A batch of bare calls.
    fn raw(&self, peer: &mut Peer, call: &Lanes<'_>, mut record: impl FnMut(Duration)) -> Result<()> {
        let mut fault = None;
        for i in 0..BATCH {
            self.before(i)?;
            let started = Instant::now();
            call.run_here()?;
            record(started.elapsed());
            fault = fault.or(self.after()?);
        }
        match fault.or(self.compare(peer, false)?) {
            Some(fault) => Err(anyhow!("the raw loop moved wrong bytes: {fault}")),
            None => Ok(()),
        }
    }

    /// A batch of round trips with the block in one of the two directions.
    fn ping_pong(&self, peer: &mut Peer, record: impl FnMut(Duration)) -> Result<()> {
        peer.order(&Request::PingPong { count: BATCH, ball: Ball::Block })?;
        let block = vec![0; self.plan.shape.len as usize];
        let (out, mut back) = match self.plan.op {
            BenchOp::Write => (block, vec![0]),
            BenchOp::Read => (vec![0], block),
        };
        ping(&mut self.session.wires.socket()?, &out, &mut back, BATCH, record)?;
        peer.over()
    }

    /// Makes each transfer's bytes differ from those of the one before: what a write sends, or what a read overwrites.
    fn before(&self, i: u32) -> Result<()> {
        let word = match self.plan.op {
            BenchOp::Write => self.word(i),
            BenchOp::Read => !self.source_word(),
        };
        self.session.pool.write(self.near, &word.to_le_bytes())
    }

    /// Looks whether a read has arrived; a write is looked at when the batch is over.
    fn after(&self) -> Result<Option<String>> {
        if self.plan.op == BenchOp::Write {
            return Ok(None);
        }
        let mut word = [0; 8];
        self.session.pool.read(self.near, &mut word)?;
        let arrived = word == self.source_word().to_le_bytes();
        Ok((!arrived).then(|| "a read was done before its bytes had arrived".to_owned()))
    }

    /// Compares the whole block with what was moved last.
    fn compare(&self, peer: &mut Peer, flip: bool) -> Result<Option<String>> {
        match self.plan.op {
            BenchOp::Read => self.stage.verify(peer, flip),
            BenchOp::Write => {
                let word = if flip { !self.word(BATCH - 1) } else { self.word(BATCH - 1) };
                peer.compare(&Request::VerifyBlock { word })
            }
        }
    }

    /// The first word that the i-th write of a batch sends.
    fn word(&self, i: u32) -> u64 {
        word_at(!self.plan.seed, u64::from(i))
    }

    fn source_word(&self) -> u64 {
        word_at(self.plan.seed, self.far / 8)
    }
}
