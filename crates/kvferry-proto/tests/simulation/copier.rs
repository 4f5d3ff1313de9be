//! A copy thread, one memory access a step, in the order that the protocol demands.

use kvferry_proto::{RegionId, busy_word};

use crate::bug::Bug;
use crate::ledger::AttemptId;
use crate::process::{Phase, Work};
use crate::world::World;

/// A copy thread.
#[derive(Default)]
pub(crate) struct Copier {
    state: State,
    /// Its last system call that took long: from, until.
    pub(crate) slow: (u64, u64),
}

#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Idle,
    /// Counted in the transfer's inflight and in the region's uses.
    Entered(Chunk),
    Acknowledged(Chunk, u64),
    Checked(Chunk, u64),
    Published(Chunk, u64),
    /// In the system call.
    Copying(Chunk),
    HalfCopied(Chunk),
    Copied(Chunk),
    Idled(Chunk),
}

/// A chunk and all that is needed to judge it.
#[derive(Clone, Copy)]
struct Chunk {
    work: Work,
    id: AttemptId,
    link: usize,
    local: RegionId,
    remote: RegionId,
    /// Whether it writes to the peer's memory.
    writes_remote: bool,
}

impl Copier {
    pub(crate) fn was_slow(&self, from: u64, until: u64) -> bool {
        self.slow.0 < until && self.slow.1 > from
    }
}

impl World {
    /// One step of copier `k`. Returns whether there was anything to do.
    pub(crate) fn step_copier(&mut self, pid: usize, k: usize) -> bool {
        let now = self.now;
        if self.procs[pid].copiers[k].slow.1 > now {
            return false;
        }
        let state = self.procs[pid].copiers[k].state;
        let next = match state {
            State::Idle => match self.enter(pid) {
                Some(chunk) => State::Entered(chunk),
                None => return false,
            },
            State::Entered(chunk) if self.bug == Bug::CheckBeforeEpoch => match self.may_copy(pid, &chunk) {
                true => State::Acknowledged(chunk, u64::MAX),
                false => State::Idle,
            },
            State::Entered(chunk) => {
                State::Acknowledged(chunk, self.procs[pid].links[chunk.link].acknowledged)
            }
            State::Acknowledged(chunk, _) if self.bug == Bug::CheckBeforeEpoch => {
                State::Checked(chunk, self.procs[pid].links[chunk.link].acknowledged)
            }
            State::Acknowledged(chunk, acknowledged) => match self.may_copy(pid, &chunk) {
                true => State::Checked(chunk, acknowledged),
                false => State::Idle,
            },
            State::Checked(chunk, acknowledged) => {
                *self.busy(pid, k, &chunk) = busy_word(acknowledged);
                State::Published(chunk, acknowledged)
            }
            State::Published(chunk, acknowledged) => {
                if self.owner_epoch(pid, &chunk) == acknowledged || self.bug == Bug::SkipEpochCheck {
                    if self.rng.once_in(60) && !self.calm {
                        self.procs[pid].copiers[k].slow = (now, now + self.rng.range(1_000, 180_000));
                    }
                    State::Copying(chunk)
                } else {
                    *self.busy(pid, k, &chunk) = 0;
                    self.ledger.seen.stepped_back += 1;
                    State::Entered(chunk)
                }
            }
            State::Copying(chunk) => {
                self.touch(pid, &chunk, false);
                State::HalfCopied(chunk)
            }
            State::HalfCopied(chunk) => {
                self.touch(pid, &chunk, true);
                State::Copied(chunk)
            }
            State::Copied(chunk) => {
                *self.busy(pid, k, &chunk) = 0;
                State::Idled(chunk)
            }
            State::Idled(chunk) => {
                self.leave(pid, &chunk, true);
                State::Idle
            }
        };
        self.procs[pid].copiers[k].state = next;
        true
    }

    /// Takes a chunk and counts it, unless its transfer has ended.
    fn enter(&mut self, pid: usize) -> Option<Chunk> {
        let process = &mut self.procs[pid];
        let chunk = match process.work.pop_front()? {
            work @ Work::Own { transfer, attempt } => {
                let transfer_index = transfer;
                let transfer = &mut process.transfers[transfer];
                if transfer.attempt != attempt || !transfer.phase.is_moving() {
                    return None;
                }
                transfer.phase = Phase::Running;
                transfer.inflight += 1;
                Chunk {
                    work,
                    id: (pid, transfer_index, attempt),
                    link: transfer.link,
                    local: transfer.local,
                    remote: transfer.remote,
                    writes_remote: transfer.is_write,
                }
            }
            work @ Work::Served { served } => {
                let served = &mut process.served[served];
                if served.revoked || served.failed {
                    return None;
                }
                served.inflight += 1;
                Chunk {
                    work,
                    id: served.id,
                    link: served.link,
                    local: served.local,
                    remote: served.remote,
                    writes_remote: !served.is_write,
                }
            }
        };
        process.regions[chunk.local.0 as usize].uses += 1;
        Some(chunk)
    }

    /// Whether regions, operation and link are still good; if not, the chunk is given up.
    fn may_copy(&mut self, pid: usize, chunk: &Chunk) -> bool {
        let process = &mut self.procs[pid];
        let ours_is_gone = process.regions[chunk.local.0 as usize].revoked;
        let link = &process.links[chunk.link];
        let theirs_is_gone = link.is_revoked(chunk.remote);
        let ended = match chunk.work {
            Work::Own { transfer, .. } => !process.transfers[transfer].phase.is_moving(),
            Work::Served { served } => {
                let served = &mut process.served[served];
                served.failed |= ours_is_gone;
                served.revoked |= theirs_is_gone;
                served.failed || served.revoked
            }
        };
        if !(ours_is_gone || theirs_is_gone || ended) {
            return true;
        }
        if let Work::Own { transfer, .. } = chunk.work {
            self.fail_transfer(pid, transfer);
        }
        self.leave(pid, chunk, false);
        false
    }

    fn busy(&mut self, pid: usize, k: usize, chunk: &Chunk) -> &mut u64 {
        let link = &self.procs[pid].links[chunk.link];
        let page = link.page.expect("work comes over links that are up");
        &mut self.pages[page].busy[link.side][k]
    }

    fn owner_epoch(&self, pid: usize, chunk: &Chunk) -> u64 {
        let link = &self.procs[pid].links[chunk.link];
        self.pages[link.page.expect("work comes over links that are up")].epoch[1 - link.side]
    }

    /// The system call reads on one side and writes on the other.
    fn touch(&mut self, pid: usize, chunk: &Chunk, last: bool) {
        let link = &self.procs[pid].links[chunk.link];
        let conn = &self.conns[link.conn];
        let (their_side, their_pid) = (1 - link.side, conn.pids[1 - link.side]);
        if !self.procs[their_pid].is_alive() {
            // Its memory is gone, and the call answers that.
            return;
        }
        if conn.cut_off[their_side] {
            let what =
                format!("{:?} touched memory of process {their_pid} after disconnect returned Ok", chunk.id);
            self.ledger.broken(what);
        }
        if self.procs[their_pid].regions[chunk.remote.0 as usize].free {
            let verb = if chunk.writes_remote { "wrote to" } else { "read from" };
            self.ledger.broken(format!(
                "{:?} {verb} region {} of process {their_pid} after deregister returned Ok",
                chunk.id, chunk.remote
            ));
        }
        if self.procs[pid].regions[chunk.local.0 as usize].free {
            let what =
                format!("{:?} touched own region {} after deregister returned Ok", chunk.id, chunk.local);
            self.ledger.broken(what);
        }
        self.ledger.written(chunk.id, last);
    }

    /// The chunk is over, copied or given up.
    fn leave(&mut self, pid: usize, chunk: &Chunk, copied: bool) {
        let process = &mut self.procs[pid];
        process.regions[chunk.local.0 as usize].uses -= 1;
        match chunk.work {
            Work::Served { served } => {
                process.served[served].inflight -= 1;
                process.served[served].left -= u32::from(copied);
            }
            Work::Own { transfer: index, .. } => {
                let transfer = &mut process.transfers[index];
                transfer.inflight -= 1;
                transfer.left -= u32::from(copied);
                let peer = process.links[chunk.link].conn;
                let alive =
                    self.procs[self.conns[peer].pids[1 - self.procs[pid].links[chunk.link].side]].is_alive();
                if !alive && copied {
                    // The system call failed.
                    self.fail_transfer(pid, index);
                } else if self.procs[pid].transfers[index].left == 0 {
                    self.land_transfer(pid, index);
                }
            }
        }
    }
}
