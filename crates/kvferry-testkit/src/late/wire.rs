use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use kvferry_proto::{RegionId, RevokeScope};

use super::lock;

/// The end of a wire whose agent starts the operations.
pub(super) const INITIATOR: usize = 0;
/// The other end.
pub(super) const TARGET: usize = 1;

/// What both ends of a link know together: who has taken back what, and what runs.
#[derive(Debug, Default)]
pub(super) struct Wire {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_run: u64,
    running: HashMap<u64, Run>,
    ends: [End; 2],
}

/// A copy under way, and the regions of both ends that it touches.
#[derive(Debug)]
struct Run {
    regions: [Vec<RegionId>; 2],
}

/// Why a copy may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barred {
    /// This end has taken back one of the regions.
    Region(usize),
    /// This end has parted with the other.
    Everything(usize),
}

/// What one end's agent has taken back.
#[derive(Debug, Default)]
struct End {
    gone: HashSet<RegionId>,
    all_gone: bool,
    /// Copies that had begun when an epoch did: it is not quiet before them.
    waits: Vec<(u64, u64)>,
}

impl Wire {
    /// Begins a copy between these regions of the two ends, unless one of them has been taken back.
    pub(super) fn begin(&self, regions: [Vec<RegionId>; 2]) -> Result<u64, Barred> {
        let mut state = lock(&self.state);
        for (end, regions) in regions.iter().enumerate() {
            let End { gone, all_gone, .. } = &state.ends[end];
            if *all_gone {
                return Err(Barred::Everything(end));
            }
            if regions.iter().any(|region| gone.contains(region)) {
                return Err(Barred::Region(end));
            }
        }
        state.last_run += 1;
        let run = state.last_run;
        state.running.insert(run, Run { regions });
        Ok(run)
    }

    /// A copy is over.
    pub(super) fn finish(&self, run: u64) {
        let mut state = lock(&self.state);
        state.running.remove(&run);
        state.ends.iter_mut().for_each(|end| end.waits.retain(|(_, other)| *other != run));
    }

    /// The agent of `end` takes memory back, as of `epoch`.
    pub(super) fn revoke(&self, end: usize, epoch: u64, scope: &RevokeScope) {
        let mut state = lock(&self.state);
        let State { running, ends, .. } = &mut *state;
        let touches = |run: &Run| scope.all || run.regions[end].iter().any(|id| scope.regions.contains(id));
        let end = &mut ends[end];
        end.all_gone |= scope.all;
        end.gone.extend(&scope.regions);
        end.waits.extend(running.iter().filter(|(_, run)| touches(run)).map(|(number, _)| (epoch, *number)));
    }

    /// Whether nothing that had begun before `epoch` touches what `end` took back by then.
    pub(super) fn is_quiet(&self, end: usize, epoch: u64) -> bool {
        lock(&self.state).ends[end].waits.iter().all(|(of, _)| *of > epoch)
    }

    /// Whether no copy runs.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.state).running.is_empty()
    }
}
