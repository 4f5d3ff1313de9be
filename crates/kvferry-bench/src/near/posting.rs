use std::time::Instant;

use anyhow::anyhow;
use kvferry::{Indices, TransferOptions};

use super::session::{Session, Turn, mechanism_of, turns, wait_done};
use super::{Measured, RowError, engine};
use crate::layout::Layout;
use crate::message::Plan;
use crate::opposite::Peer;
use crate::progress::Watch;
use crate::row::Measure;
use crate::samples::Times;

/// Blocks that a round posts in all, about.
const BLOCKS: u64 = 500_000;

/// Prepared blocks picked by index: what creating a transfer of them and posting it costs the caller. The raw loop
/// moves the same blocks, so that the ratio is the caller's share of the time that moving them takes at least.
pub(super) fn measure(
    session: &Session<'_>,
    peer: &mut Peer,
    plan: Plan,
    watch: &mut dyn Watch,
) -> Result<Measured, RowError> {
    let layout = Layout::new(plan.shape, session.pool.len(), plan.seed);
    let stage = session.begin(peer, &plan)?;
    let (local, remote) = session.prepare(&layout)?;
    let mechanism = mechanism_of(&session.transfer(&plan, &layout)?)?;
    let mut raw = session.raw(mechanism, &plan, &layout)?;
    let indices: Vec<u32> = (0..).take(layout.near.len()).collect();
    let batch = (BLOCKS / plan.shape.count).clamp(5, 50);
    let (mut times, mut limits) = (Times::new(), Times::new());
    let (mut cpu, mut fault) = (0.0, None);
    for round in 0..=session.options.rounds {
        let counted = round > 0;
        for turn in turns(round) {
            stage.poison(peer)?;
            match turn {
                Turn::Engine => {
                    let before = session.cpu_time(peer)?;
                    for _ in 0..batch {
                        let started = Instant::now();
                        let transfer = engine!(session.agent.transfer(
                            plan.op.into(),
                            &local,
                            Indices::List(&indices),
                            &remote,
                            Indices::List(&indices),
                            TransferOptions::default(),
                        ))?;
                        engine!(transfer.post())?;
                        let took = started.elapsed();
                        wait_done(&transfer)?;
                        if counted {
                            times.record(took);
                        }
                    }
                    if counted {
                        cpu += session.cpu_time(peer)? - before;
                    }
                    let found = stage.verify(peer, session.options.flip)?;
                    fault = fault.or(found);
                }
                Turn::Raw => {
                    let took = raw.round(peer)?;
                    if let Some(found) = stage.verify(peer, false)? {
                        return Err(anyhow!("the raw loop moved wrong bytes: {found}").into());
                    }
                    if counted {
                        limits.record(took);
                    }
                }
            }
        }
        watch.step();
    }
    let fault = fault.map_or_else(|| stage.verify_gaps(peer), |fault| Ok(Some(fault)))?;
    let bytes = (plan.shape.bytes() * batch) as f64 * f64::from(session.options.rounds);
    Ok(Measured {
        mechanism: mechanism.to_string(),
        measure: Measure::Time { p50_us: times.microseconds(0.5), p99_us: times.microseconds(0.99) },
        limit: raw.limit(),
        limit_median: limits.microseconds(0.5),
        cpu_s_per_gb: Some(cpu / (bytes / 1e9)),
        fault,
    })
}
