use std::time::{Duration, Instant};

use super::session::{Session, Turn, turns};
use super::{Measured, RowError, engine};
use crate::far::await_notification;
use crate::message::{Ball, Request};
use crate::opposite::Peer;
use crate::progress::Watch;
use crate::raw::ping;
use crate::row::{Limit, Measure};
use crate::samples::Times;

/// Round trips of a round.
const BATCH: u32 = 1_000;

/// Notifications there and back: half of the round trip. Both sides sleep until they are told.
pub(super) fn measure(
    session: &Session<'_>,
    peer: &mut Peer,
    watch: &mut dyn Watch,
) -> Result<Measured, RowError> {
    let (mut times, mut limits) = (Times::new(), Times::new());
    let mut fault = None;
    for round in 0..=session.options.rounds {
        let counted = round > 0;
        for turn in turns(round) {
            match turn {
                Turn::Engine => {
                    let found = echo(session, peer, |took| {
                        if counted {
                            times.record(took / 2);
                        }
                    })?;
                    fault = fault.or(found);
                }
                Turn::Raw => {
                    peer.order(&Request::PingPong { count: BATCH, ball: Ball::Note })?;
                    ping(&mut session.wires.socket()?, &[0; 8], &mut [0; 8], BATCH, |took| {
                        if counted {
                            limits.record(took / 2);
                        }
                    })?;
                    peer.over()?;
                }
            }
        }
        watch.step();
    }
    Ok(Measured {
        mechanism: "control".to_owned(),
        measure: Measure::Time { p50_us: times.microseconds(0.5), p99_us: times.microseconds(0.99) },
        limit: Limit::PingPong,
        limit_median: limits.microseconds(0.5),
        cpu_s_per_gb: None,
        fault,
    })
}

/// A batch of notifications that the far side sends back; returns the first that was not the one expected.
fn echo(
    session: &Session<'_>,
    peer: &mut Peer,
    mut record: impl FnMut(Duration),
) -> Result<Option<String>, RowError> {
    let events = session.agent.events().map_err(anyhow::Error::from)?;
    peer.order(&Request::Echo { count: BATCH })?;
    let mut fault = None;
    for i in 0..u64::from(BATCH) {
        let sent = if session.options.flip && i == 0 { !i } else { i };
        let started = Instant::now();
        engine!(session.agent.notify(&session.far, &sent.to_le_bytes()))?;
        await_notification(&session.agent, &events, |payload| {
            if payload != i.to_le_bytes() && fault.is_none() {
                fault = Some(format!("notification {i} came back as {payload:?}"));
            }
            Ok(true)
        })?;
        record(started.elapsed());
    }
    peer.over()?;
    Ok(fault)
}
