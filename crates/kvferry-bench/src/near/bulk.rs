use anyhow::anyhow;

use super::session::{Session, Turn, mechanism_of, move_once, turns};
use super::{Measured, RowError};
use crate::layout::Layout;
use crate::message::Plan;
use crate::opposite::Peer;
use crate::progress::Watch;
use crate::row::Measure;
use crate::samples::Rates;

/// Many blocks at once: bytes by the time from post to done.
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
    let mut raw = session.raw(mechanism, &plan, &layout)?;
    let bytes = plan.shape.bytes();
    let (mut rates, mut limits) = (Rates::default(), Rates::default());
    let (mut cpu, mut fault) = (0.0, None);
    // Round 0 warms up: page tables, buffers, threads.
    for round in 0..=session.options.rounds {
        for turn in turns(round) {
            stage.poison(peer)?;
            match turn {
                Turn::Engine => {
                    let before = session.cpu_time(peer)?;
                    let took = move_once(&transfer)?;
                    let after = session.cpu_time(peer)?;
                    let found = stage.verify(peer, session.options.flip)?;
                    if round > 0 {
                        rates.record(bytes, took);
                        cpu += after - before;
                    }
                    fault = fault.or(found);
                }
                Turn::Raw => {
                    let took = raw.round(peer)?;
                    if let Some(found) = stage.verify(peer, false)? {
                        return Err(anyhow!("the raw loop moved wrong bytes: {found}").into());
                    }
                    if round > 0 {
                        limits.record(bytes, took);
                    }
                }
            }
        }
        watch.step();
    }
    let fault = fault.map_or_else(|| stage.verify_gaps(peer), |fault| Ok(Some(fault)))?;
    Ok(Measured {
        mechanism: mechanism.to_string(),
        measure: Measure::Rate { gbps_median: rates.median(), gbps_min: rates.min(), gbps_max: rates.max() },
        limit: raw.limit(),
        limit_median: limits.median(),
        cpu_s_per_gb: Some(cpu / (bytes as f64 * f64::from(session.options.rounds) / 1e9)),
        fault,
    })
}
