//! The application threads of a process: what they call, and what they are promised.

use kvferry_proto::{
    ByeReason, Command, Identity, Offer, OfferRefusal, OldLink, RegionId, Reservation, Update, Verdict,
};

use crate::bug::Bug;
use crate::net::INITIATOR;
use crate::process::{Peer, Phase, Region, Transfer, Work};
use crate::world::{Blob, World};

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
    pub(crate) fn other(&mut self, pid: usize) -> String {
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

    fn reserve(&mut self, pid: usize, name: &str, note: u64) -> Option<Reservation> {
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
}
