//! Calls that promise quiet memory: cancel, deregister, disconnect.

use kvferry_proto::{ByeReason, Loss, Outcome, RegionId, RevokeScope};

use crate::bug::Bug;
use crate::delegation::op_number;
use crate::process::Phase;
use crate::world::{PATIENCE, World};

/// A call that has not returned.
pub(crate) struct Waiting {
    what: Call,
    since: u64,
    until: u64,
    /// Links and epochs that must become quiet.
    quiet: Vec<(usize, u64)>,
}

#[derive(Clone, Debug)]
enum Call {
    Cancel { transfer: usize, attempt: u32 },
    Deregister { region: RegionId },
    Disconnect { links: Vec<usize> },
}

impl World {
    pub(crate) fn cancel(&mut self, pid: usize) {
        let process = &self.procs[pid];
        let open: Vec<usize> = (0..process.transfers.len())
            .filter(|&at| !process.transfers[at].phase.is_final() || process.transfers[at].inflight > 0)
            .collect();
        let Some(index) = self.rng.pick(&open) else {
            return;
        };
        let transfer = &mut self.procs[pid].transfers[index];
        let attempt = transfer.attempt;
        let must_revoke = transfer.delegated && transfer.inflight > 0 && transfer.quiet_at.is_none();
        if transfer.phase.is_moving() {
            transfer.phase = Phase::Cancelled;
            transfer.reservation = None;
            self.ledger.ended_cancelled((pid, index, attempt));
        }
        if must_revoke {
            let link = self.procs[pid].transfers[index].link;
            let scope = RevokeScope::ops([op_number(index, attempt)]);
            let epoch = self.revoke(pid, link, scope, self.now + PATIENCE);
            self.procs[pid].transfers[index].quiet_at = epoch;
        }
        self.wait(pid, Call::Cancel { transfer: index, attempt }, Vec::new());
    }

    pub(crate) fn deregister(&mut self, pid: usize) {
        let process = &self.procs[pid];
        let live: Vec<usize> =
            (0..process.regions.len()).filter(|&at| !process.regions[at].revoked).collect();
        if live.len() < 2 {
            return;
        }
        let Some(region) = self.rng.pick(&live) else {
            return;
        };
        let process = &mut self.procs[pid];
        process.regions[region].revoked = true;
        process.generation += 1;
        let region = RegionId(region as u64);
        let until = self.now + PATIENCE;
        let mut quiet = Vec::new();
        for li in 0..self.procs[pid].links.len() {
            if self.procs[pid].links[li].retired {
                continue;
            }
            let Some(epoch) = self.revoke(pid, li, RevokeScope::regions([region]), until) else {
                continue;
            };
            quiet.push((li, epoch));
            for index in 0..self.procs[pid].transfers.len() {
                let transfer = &mut self.procs[pid].transfers[index];
                if transfer.link != li || transfer.local != region {
                    continue;
                }
                if transfer.delegated && transfer.inflight > 0 {
                    transfer.quiet_at = Some(epoch);
                }
                self.fail_transfer(pid, index);
            }
        }
        self.wait(pid, Call::Deregister { region }, quiet);
    }

    pub(crate) fn disconnect(&mut self, pid: usize) {
        let name = self.other(pid);
        let process = &self.procs[pid];
        let links: Vec<usize> = (0..process.links.len())
            .filter(|&li| {
                let link = &process.links[li];
                !link.retired && link.peer.as_ref().is_some_and(|peer| peer.name == name)
            })
            .collect();
        let until = self.now + PATIENCE;
        let mut quiet = Vec::new();
        for &li in &links {
            let epoch = self.revoke(pid, li, RevokeScope::all(), until);
            quiet.extend(epoch.map(|epoch| (li, epoch)));
            self.procs[pid].links[li].closing = true;
            for served in self.procs[pid].served.iter_mut().filter(|served| served.link == li) {
                served.revoked = true;
            }
            self.end_transfers(pid, li, epoch);
            if epoch.is_none() {
                // Not attached: nothing can run yet.
                self.close(pid, li, ByeReason::Disconnected);
            }
        }
        // Who disconnects forgets; whoever wants to talk again loads again.
        let known = self.procs[pid].peers.get(&name).map(|peer| peer.identity.clone());
        if let Some(identity) = known {
            self.procs[pid].table.lost(&identity, Loss::Presumed);
            self.ledger.sender_gone(pid, &identity);
            self.procs[pid].peers.remove(&name);
        }
        self.wait(pid, Call::Disconnect { links }, quiet);
    }

    fn wait(&mut self, pid: usize, what: Call, quiet: Vec<(usize, u64)>) {
        let (since, until) = (self.now, self.now + PATIENCE);
        self.procs[pid].waiting.push(Waiting { what, since, until, quiet });
        self.poll_calls(pid);
    }

    /// Returns from calls: Ok when it is safe, else busy when the time is over. Busy ones are called again at once.
    pub(crate) fn poll_calls(&mut self, pid: usize) {
        let mut at = 0;
        while at < self.procs[pid].waiting.len() {
            let call = &self.procs[pid].waiting[at];
            let (what, quiet, since) = (call.what.clone(), call.quiet.clone(), call.since);
            let is_late = self.now >= call.until;
            if self.is_done(pid, &what, &quiet) {
                self.procs[pid].waiting.remove(at);
                self.returned(pid, what);
                continue;
            }
            if is_late {
                self.busy_returned(pid, &what, &quiet, since);
                let now = self.now;
                let call = &mut self.procs[pid].waiting[at];
                (call.since, call.until) = (now, now + PATIENCE);
            }
            at += 1;
        }
    }

    fn is_done(&mut self, pid: usize, what: &Call, quiet: &[(usize, u64)]) -> bool {
        let now = self.instant();
        for &(li, epoch) in quiet {
            self.sample(pid, li);
            if self.procs[pid].links[li].revocations.outcome(epoch, now) != Outcome::Quiet {
                return false;
            }
        }
        self.settle_delegated(pid);
        let process = &self.procs[pid];
        match what {
            Call::Cancel { transfer, attempt } => {
                let transfer = &process.transfers[*transfer];
                let is_over = !transfer.phase.is_moving() && transfer.inflight == 0;
                transfer.attempt != *attempt || is_over || self.bug == Bug::CancelWithoutWaiting
            }
            Call::Deregister { region } => process.regions[region.0 as usize].uses == 0,
            Call::Disconnect { links } => {
                let of_links = |link: &usize| links.contains(link);
                let own = process.transfers.iter().filter(|transfer| of_links(&transfer.link));
                let served = process.served.iter().filter(|served| of_links(&served.link));
                own.map(|transfer| transfer.inflight).sum::<u32>() == 0
                    && served.map(|served| served.inflight).sum::<u32>() == 0
            }
        }
    }

    fn returned(&mut self, pid: usize, what: Call) {
        match what {
            Call::Cancel { transfer, attempt } => {
                if self.procs[pid].transfers[transfer].attempt == attempt {
                    self.ledger.let_go((pid, transfer, attempt));
                }
            }
            Call::Deregister { region } => {
                self.ledger.seen.deregistered += 1;
                self.procs[pid].regions[region.0 as usize].free = true;
            }
            Call::Disconnect { links } => {
                self.ledger.seen.disconnected += 1;
                for li in links {
                    let link = &self.procs[pid].links[li];
                    self.conns[link.conn].cut_off[link.side] = true;
                    self.close(pid, li, ByeReason::Disconnected);
                }
            }
        }
    }

    /// Busy is an answer only if somebody stood still or was in a long system call.
    fn busy_returned(&mut self, pid: usize, what: &Call, quiet: &[(usize, u64)], since: u64) {
        let seen = &mut self.ledger.seen;
        match what {
            Call::Cancel { .. } => seen.cancel_busy += 1,
            Call::Deregister { .. } => seen.deregister_busy += 1,
            Call::Disconnect { .. } => seen.disconnect_busy += 1,
        }
        let mut involved: Vec<usize> = quiet.iter().map(|(li, _)| self.peer_pid(pid, *li)).collect();
        if let Call::Cancel { transfer, .. } = what {
            involved.push(self.peer_pid(pid, self.procs[pid].transfers[*transfer].link));
        }
        involved.push(pid);
        let excused = involved.iter().any(|&at| {
            let process = &self.procs[at];
            let slow = process.copiers.iter().any(|copier| copier.was_slow(since, self.now));
            process.was_stopped(since, self.now) || slow
        });
        if !excused {
            self.ledger.broken(format!("process {pid}: {what:?} is busy, and nobody stands still"));
        }
    }

    fn peer_pid(&self, pid: usize, li: usize) -> usize {
        let link = &self.procs[pid].links[li];
        self.conns[link.conn].pids[1 - link.side]
    }
}
