//! The application threads of a process: what they call, and what they are promised.

use kvferry_proto::{
    ByeReason, Command, Identity, Loss, Offer, OfferRefusal, OldLink, Outcome, RegionId, RevokeScope, Update,
    Verdict,
};

use crate::bug::Bug;
use crate::control::op_number;
use crate::net::INITIATOR;
use crate::process::{Peer, Phase, Region, Transfer, Work};
use crate::world::{Blob, PATIENCE, World};

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
    /// One step of the application. Returns whether it did anything.
    pub(crate) fn step_app(&mut self, pid: usize) -> bool {
        self.poll_calls(pid);
        if self.calm {
            self.drain(pid);
            return !self.procs[pid].waiting.is_empty();
        }
        match self.rng.range(0, 100) {
            0..38 => self.post(pid),
            38..48 => self.cancel(pid),
            48..58 => self.notify(pid),
            58..74 => self.drain(pid),
            74..86 => self.load(pid),
            86..90 => self.register(pid),
            90..95 => self.deregister(pid),
            95..97 => self.disconnect(pid),
            97 => self.remove(pid),
            _ => {}
        }
        true
    }

    /// The name of a random other agent.
    fn other(&mut self, pid: usize) -> String {
        let own = self.procs[pid].identity.name.clone();
        let names: Vec<String> = self.names.iter().filter(|name| **name != own).cloned().collect();
        names[self.rng.index(names.len())].clone()
    }

    fn load(&mut self, pid: usize) {
        let name = self.other(pid);
        let living = self.living(&name);
        let old: Vec<usize> =
            (0..self.blobs.len()).filter(|&at| self.blobs[at].identity.name == name).collect();
        let outdated = !old.is_empty() && (living.is_none() || self.rng.once_in(6));
        let blob = if outdated {
            self.blobs[old[self.rng.index(old.len())]].clone()
        } else if let Some(peer) = living {
            self.blob_of(peer)
        } else {
            return;
        };
        self.offer(pid, &blob, !outdated);
    }

    fn blob_of(&mut self, pid: usize) -> Blob {
        let partial = self.rng.once_in(5);
        let process = &self.procs[pid];
        let regions = (0..process.regions.len() as u64)
            .map(RegionId)
            .filter(|id| !process.regions[id.0 as usize].revoked && (!partial || self.rng.once_in(2)))
            .collect();
        let blob =
            Blob { identity: process.identity.clone(), generation: process.generation, partial, regions };
        self.blobs.push(blob.clone());
        blob
    }

    fn offer(&mut self, pid: usize, blob: &Blob, is_fresh: bool) {
        let identity = &blob.identity;
        let offer = Offer { identity, generation: blob.generation, partial: blob.partial };
        let known = self.procs[pid].peers.get(&identity.name);
        let old_link = match known.and_then(|peer| peer.link) {
            Some(li) if self.procs[pid].links[li].is_usable() => OldLink::Alive,
            _ => OldLink::Down,
        };
        let mut verdict = self.procs[pid].table.offer(&offer, old_link);
        if let Verdict::NeedsReachability { .. } = verdict {
            let reachable =
                self.living(&identity.name).is_some_and(|at| self.procs[at].identity == *identity);
            if !reachable {
                return;
            }
            verdict = self.procs[pid].table.confirm(&offer);
            if let Verdict::Replace { old } = verdict {
                let old = Identity { name: identity.name.clone(), incarnation: old };
                self.procs[pid].saw_die.insert(old);
            }
        }
        let saw_it_die = self.procs[pid].saw_die.contains(identity);
        match verdict {
            Verdict::Refused(OfferRefusal::Dead { .. }) => self.ledger.seen.refused_dead += 1,
            _ if saw_it_die => {
                self.ledger.broken(format!("{identity:?} is dead and was not refused: {verdict:?}"));
            }
            _ => {}
        }
        match verdict {
            Verdict::Refused(why) if is_fresh => {
                self.ledger.broken(format!("{identity:?} is alive and was refused: {why}"));
            }
            Verdict::Refused(_) | Verdict::NeedsReachability { .. } => {}
            Verdict::Known(Update::Unchanged) => {}
            Verdict::Known(update) => {
                let revoked: Vec<RegionId> = self.revoked_of(pid, blob);
                if let Some(peer) = self.procs[pid].peers.get_mut(&identity.name) {
                    if update == Update::Replace {
                        peer.regions.clear();
                    }
                    peer.regions.extend(blob.regions.iter().filter(|id| !revoked.contains(id)));
                }
            }
            Verdict::New => self.take_in(pid, blob),
            Verdict::Replace { .. } => {
                self.ledger.seen.replaced += 1;
                self.forget_peer(pid, &identity.name, ByeReason::Closed);
                self.take_in(pid, blob);
            }
        }
    }

    fn revoked_of(&self, pid: usize, blob: &Blob) -> Vec<RegionId> {
        let table = &self.procs[pid].table;
        blob.regions.iter().copied().filter(|id| table.is_revoked(&blob.identity.name, *id)).collect()
    }

    fn take_in(&mut self, pid: usize, blob: &Blob) {
        let peer = Peer {
            identity: blob.identity.clone(),
            regions: blob.regions.iter().copied().collect(),
            link: None,
            sender: None,
            reconnect_at: None,
            reconnected: false,
        };
        self.procs[pid].peers.insert(blob.identity.name.clone(), peer);
        self.connect(pid, &blob.identity.name);
    }

    fn remove(&mut self, pid: usize) {
        let name = self.other(pid);
        if self.procs[pid].table.remove(&name).is_some() {
            self.forget_peer(pid, &name, ByeReason::Closed);
        }
    }

    fn register(&mut self, pid: usize) {
        let process = &mut self.procs[pid];
        process.regions.push(Region::default());
        process.generation += 1;
    }

    fn post(&mut self, pid: usize) {
        let name = self.other(pid);
        let process = &self.procs[pid];
        let Some(peer) = process.peers.get(&name) else {
            return;
        };
        let Some(li) = peer.link.filter(|&li| process.links[li].is_usable()) else {
            return;
        };
        let locals: Vec<RegionId> = (0..process.regions.len() as u64)
            .map(RegionId)
            .filter(|id| !process.regions[id.0 as usize].revoked)
            .collect();
        let remotes: Vec<RegionId> = peer.regions.iter().copied().collect();
        let identity = peer.identity.clone();
        let (Some(local), Some(remote)) = (self.rng.pick(&locals), self.rng.pick(&remotes)) else {
            return;
        };
        // A finished handle of the same link, or a new one.
        let transfers = &self.procs[pid].transfers;
        let free = transfers
            .iter()
            .position(|transfer| transfer.link == li && transfer.phase.is_final() && transfer.inflight == 0);
        let index = free.filter(|_| self.rng.once_in(2)).unwrap_or(transfers.len());
        let attempt = self.procs[pid].transfers.get(index).map_or(1, |transfer| transfer.attempt + 1);
        let id = (pid, index, attempt);
        let note = self.rng.once_in(2).then(|| self.ledger.new_note(pid, identity, Some(id)));
        let reservation = match note {
            Some(note) => match self.reserve(pid, &name, note) {
                Some(reservation) => Some(reservation),
                None => return,
            },
            None => None,
        };
        let transfer = Transfer {
            phase: Phase::Posted,
            attempt,
            inflight: 0,
            link: li,
            is_write: self.rng.once_in(2),
            delegated: self.rng.once_in(3),
            local,
            remote,
            left: self.rng.range(1, 4) as u32,
            reservation,
            note,
            quiet_at: None,
        };
        let (chunks, delegated) = (transfer.left, transfer.delegated);
        self.ledger.posted(id, chunks, note);
        let process = &mut self.procs[pid];
        if index == process.transfers.len() {
            process.transfers.push(transfer);
        } else {
            process.transfers[index] = transfer;
        }
        if delegated {
            process.transfers[index].inflight = 1;
            process.transfers[index].phase = Phase::Running;
            self.delegate(pid, index);
        } else {
            let work = Work::Own { transfer: index, attempt };
            process.work.extend(std::iter::repeat_n(work, chunks as usize));
        }
    }

    fn reserve(&mut self, pid: usize, name: &str, note: u64) -> Option<kvferry_proto::Reservation> {
        let credit = self.procs[pid].credits.get(name)?.clone();
        let mut payload = note.to_le_bytes().to_vec();
        payload.resize(8 + self.rng.index(60), 0);
        let reservation = credit.reserve(payload);
        self.ledger.seen.backlog += u64::from(reservation.is_err());
        reservation.ok()
    }

    fn notify(&mut self, pid: usize) {
        let name = self.other(pid);
        let Some(peer) = self.procs[pid].peers.get(&name) else {
            return;
        };
        let (identity, link) = (peer.identity.clone(), peer.link);
        let Some(li) = link.filter(|&li| self.procs[pid].links[li].session.is_some()) else {
            return;
        };
        let note = self.ledger.new_note(pid, identity, None);
        if let Some(reservation) = self.reserve(pid, &name, note)
            && self.command(pid, li, Command::Notify { reservation, token: None })
        {
            self.ledger.issued(note);
        }
    }

    fn drain(&mut self, pid: usize) {
        let count = self.procs[pid].inbox.len();
        let take = if self.calm { count } else { self.rng.index(count + 1) };
        for _ in 0..take {
            let Some(held) = self.procs[pid].inbox.pop_front() else {
                return;
            };
            if self.bug == Bug::EarlyCredit {
                continue;
            }
            let process = &mut self.procs[pid];
            let open = process.links.iter().position(|link| {
                link.side != INITIATOR && link.session.is_some() && link.peer.as_ref() == Some(&held.from)
            });
            if let Some(receiver) = process.parked.get_mut(&held.from) {
                receiver.drained(held.cost);
            } else if let Some(li) = open {
                self.command(pid, li, Command::Drained { bytes: held.cost });
            }
        }
    }

    fn cancel(&mut self, pid: usize) {
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

    fn deregister(&mut self, pid: usize) {
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

    fn disconnect(&mut self, pid: usize) {
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
    fn poll_calls(&mut self, pid: usize) {
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
