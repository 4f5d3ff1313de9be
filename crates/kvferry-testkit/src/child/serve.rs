//! Requests about the process, the agent, its memory and its peers.

use std::time::Duration;

use kvferry::{Agent, RegionId};

use super::{
    Outcome, answer, broken, confine, failure, fork, holdings,
    memory::Area,
    trap,
    withheld::{PAGE, Withheld},
    world::{World, lock},
};
use crate::harness::{Buffer, Failure, Memory, RegionState, Request};

impl World {
    /// Carries out a request.
    pub(super) fn serve(&self, request: Request) -> Outcome {
        match request {
            Request::Confine(confinement) => answer(confine::confine(&confinement).map_err(broken)),
            Request::Build { name } => {
                let agent = Agent::builder(name).build().map_err(|e| failure(e.code(), &e))?;
                answer(self.take_in(agent))
            }
            Request::Close => answer(Ok(self.close().as_nanos() as u64)),
            Request::Exit(_) => Err(broken("the main thread ends the process")),
            Request::Alloc { .. }
            | Request::Free { .. }
            | Request::Truncate { .. }
            | Request::Unmap { .. }
            | Request::Fill { .. }
            | Request::Poison { .. }
            | Request::Mark { .. }
            | Request::Unmark { .. }
            | Request::Marks { .. }
            | Request::Scan { .. }
            | Request::Digest { .. }
            | Request::Renew { .. }
            | Request::Compare { .. }
            | Request::Audit { .. }
            | Request::Withhold { .. }
            | Request::Resolve => self.serve_memory(request),
            Request::Register { .. } | Request::Deregister { .. } | Request::Regions => {
                self.serve_regions(request)
            }
            Request::Arm(trap) => {
                trap::arm(trap);
                answer(Ok(()))
            }
            Request::Trapped => answer(Ok(trap::trapped())),
            Request::Spring => {
                trap::spring();
                answer(Ok(()))
            }
            Request::Yama { on } => {
                kvferry::testing::inject_yama(on);
                answer(Ok(()))
            }
            Request::ForkSleeper => answer(fork::sleeper().map_err(broken)),
            Request::ForkProbe => answer(fork::probe(self)),
            Request::Holdings => answer(Ok(holdings::count())),
            request => self.serve_peers(request),
        }
    }

    fn serve_memory(&self, request: Request) -> Outcome {
        match request {
            Request::Alloc { memory, bytes } => answer(self.alloc(memory, bytes)),
            Request::Free { buffer } => answer(self.free_area(buffer)),
            Request::Truncate { buffer, bytes } => answer(self.area(buffer)?.truncate(bytes).map_err(broken)),
            Request::Unmap { buffer, offset } => {
                answer(self.change_area(buffer, |area| area.unmap_from(offset)))
            }
            Request::Fill { buffer, seed } => answer(self.area(buffer).map(|area| area.fill(seed))),
            Request::Poison { buffer } => answer(self.area(buffer).map(|area| area.poison())),
            Request::Mark { buffer, offset, step } => {
                answer(self.area(buffer).map(|area| area.mark(offset, step)))
            }
            Request::Unmark { buffer, offset, step, seed } => {
                answer(self.area(buffer).map(|area| area.unmark(offset, step, seed)))
            }
            Request::Marks { buffer, offset, step } => {
                answer(self.area(buffer).map(|area| area.marks(offset, step)))
            }
            Request::Scan { buffer, seed } => answer(self.area(buffer).map(|area| area.scan(seed, false))),
            Request::Digest { buffer } => answer(self.area(buffer).map(|area| area.digest())),
            Request::Renew { buffer, seed } => answer(self.area(buffer).map(|area| area.scan(seed, true))),
            Request::Compare { buffer, seed, block, pairs } => {
                answer(self.area(buffer).map(|area| area.compare(seed, block, &pairs)))
            }
            Request::Audit { buffer, seed, block, groups } => {
                answer(self.area(buffer).map(|area| area.audit(seed, block, &groups)))
            }
            Request::Withhold { buffer, offset } => {
                let area = self.area(buffer)?;
                if !offset.is_multiple_of(PAGE) || offset + PAGE > area.len() {
                    return Err(broken("no whole page of the buffer"));
                }
                *lock(&self.withheld) = Some(Withheld::new(area.addr() + offset).map_err(broken)?);
                answer(Ok(()))
            }
            Request::Resolve => {
                let withheld = lock(&self.withheld).take().ok_or_else(|| broken("no page is withheld"))?;
                answer(withheld.resolve().map_err(broken))
            }
            other => Err(broken(format!("not about memory: {other:?}"))),
        }
    }

    fn serve_regions(&self, request: Request) -> Outcome {
        let agent = self.agent()?;
        match request {
            Request::Register { buffer } => {
                let desc = self.area(buffer)?.desc();
                // SAFETY: areas stay mapped until the harness frees them, which it does after they were deregistered; they
                // are read and written as atomics only.
                let ids = unsafe { agent.register_raw(&[desc]) }.map_err(|e| failure(e.code(), &e))?;
                answer(Ok(ids.first().map(|id| id.0)))
            }
            Request::Deregister { regions, timeout_ms } => {
                let ids: Vec<RegionId> = regions.into_iter().map(RegionId).collect();
                let gone = match timeout_ms {
                    Some(ms) => agent.deregister_within(&ids, Duration::from_millis(ms)),
                    None => agent.deregister(&ids),
                };
                answer(gone.map_err(|e| failure(e.code(), &e)))
            }
            _ => {
                let regions = agent.regions();
                let state = |r: &kvferry::RegionInfo| RegionState {
                    id: r.id.0,
                    shared: r.shared,
                    quarantined: r.quarantined,
                };
                answer(Ok(regions.iter().map(state).collect::<Vec<_>>()))
            }
        }
    }

    fn alloc(&self, memory: Memory, bytes: u64) -> Result<Buffer, Failure> {
        let area = Area::new(&self.agent()?, memory, bytes).map_err(broken)?;
        let (addr, len) = (area.addr(), area.len());
        Ok(Buffer { index: self.add_area(area), addr, len })
    }
}
