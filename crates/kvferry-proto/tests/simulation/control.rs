//! The control thread of a process: it carries frames, timeouts and revocations between the sessions and the rest.

use std::time::Duration;

use kvferry_proto::{
    Action, ChannelLoss, Command, Frame, Identity, Inbound, LiveRegions, NotifyReceiver, Refusal, RegionId,
    RevokeScope, notification_cost,
};

use crate::bug::Bug;
use crate::net::{INITIATOR, Page, TARGET};
use crate::process::{Held, Phase};
use crate::world::{DEATH_NOTICE, INBOX, World};

impl World {
    /// One step of a control thread. Returns whether there was anything to do.
    pub(crate) fn step_control(&mut self, pid: usize) -> bool {
        if let Some(index) = self.procs[pid].to_issue.pop_front() {
            self.issue(pid, index);
            return true;
        }
        self.report_served(pid);
        self.settle_delegated(pid);
        let count = self.procs[pid].links.len();
        if count > 0 {
            let first = self.rng.index(count);
            for offset in 0..count {
                if self.step_link(pid, (first + offset) % count) {
                    return true;
                }
            }
        }
        self.reconnect(pid)
    }

    fn step_link(&mut self, pid: usize, li: usize) -> bool {
        let now = self.now;
        let link = &mut self.procs[pid].links[li];
        if link.retired {
            return false;
        }
        let (conn, side, is_over) = (link.conn, link.side, link.session.is_none());
        if !link.revocations.is_quiet() {
            self.sample(pid, li);
        }
        let link = &mut self.procs[pid].links[li];
        if is_over {
            // Over, it stays until its page is quiet.
            link.retired = link.revocations.is_quiet();
            return false;
        }
        if let Some(apply) = link.to_apply.front_mut() {
            let (epoch, scope, marked) = (apply.0, apply.1.clone(), std::mem::replace(&mut apply.2, true));
            if marked != (self.bug == Bug::AcknowledgeBeforeMarking) {
                self.acknowledge(pid, li, epoch);
            } else {
                self.mark_revoked(pid, li, &scope);
            }
            if marked {
                self.procs[pid].links[li].to_apply.pop_front();
            }
            return true;
        }
        let peer_pid = self.conns[conn].pids[1 - side];
        let noticed = self.procs[peer_pid].died_at.is_some_and(|at| at + DEATH_NOTICE <= now);
        // The process handle may tell before the stream has run dry.
        let at_once = noticed && self.rng.once_in(8);
        let loss = if self.conns[conn].broken {
            Some(ChannelLoss::Broken)
        } else if self.conns[conn].ended(side) {
            Some(if noticed { ChannelLoss::Died } else { ChannelLoss::Ended })
        } else {
            None
        };
        let now_instant = self.instant();
        let link = &mut self.procs[pid].links[li];
        let Some(session) = &mut link.session else {
            return false;
        };
        match link.reader.pop() {
            Ok(_) if at_once => session.channel_lost(ChannelLoss::Died),
            Ok(Some(frame)) => session.handle_frame(now_instant, frame),
            Err(error) => {
                self.ledger.broken(format!("an honest peer sent garbage: {error}"));
                return true;
            }
            Ok(None) => {
                if let Some(bytes) = self.conns[conn].read(side, now, &mut self.rng) {
                    let taken = link.reader.push(&bytes);
                    if taken < bytes.len() {
                        self.ledger.broken("the reader is full of small frames");
                    }
                    return true;
                }
                if let Some(loss) = loss {
                    session.channel_lost(loss);
                } else if session.poll_timeout().is_some_and(|at| at <= now_instant) {
                    session.handle_timeout(now_instant);
                } else {
                    return false;
                }
            }
        }
        self.pump(pid, li);
        true
    }

    /// Carries out all that the session wants.
    pub(crate) fn pump(&mut self, pid: usize, li: usize) {
        while let Some(action) =
            self.procs[pid].links[li].session.as_mut().and_then(kvferry_proto::Session::poll)
        {
            self.act(pid, li, action);
        }
    }

    fn act(&mut self, pid: usize, li: usize, action: Action) {
        match action {
            Action::Send(frame) => self.send(pid, li, &frame),
            Action::Proven { peer } => self.admit(pid, li, peer),
            Action::AttachTransport => {
                if self.procs[pid].links[li].side == TARGET {
                    let page = self.pages.len();
                    self.pages.push(Page::default());
                    self.procs[pid].links[li].page = Some(page);
                    self.send_page(pid, li, page);
                    self.command(pid, li, Command::Attached);
                }
            }
            Action::Live(live) => {
                let process = &mut self.procs[pid];
                let link = &mut process.links[li];
                if let Some(peer) = &link.peer {
                    process.table.live(peer, &live).expect("few regions");
                    if let Some(peer) = process.peers.get_mut(&peer.name) {
                        peer.regions.retain(|id| !live.excludes(*id));
                    }
                }
            }
            Action::Up => {
                self.ledger.seen.links_up += 1;
                let process = &mut self.procs[pid];
                let link = &mut process.links[li];
                link.up = true;
                if let (INITIATOR, Some(identity)) = (link.side, &link.peer) {
                    process.table.reached(identity);
                    if let Some(peer) = process.peers.get_mut(&identity.name) {
                        peer.reconnected = false;
                    }
                }
            }
            Action::Deliver { payload, .. } => self.deliver(pid, li, &payload),
            Action::NotifyAcked { token } => self.note_acked(pid, token as usize),
            Action::NotifyDropped { token } => {
                let transfer = &mut self.procs[pid].transfers[token as usize];
                if transfer.phase == Phase::Landed {
                    transfer.phase = Phase::Failed;
                    let id = (pid, token as usize, transfer.attempt);
                    self.ledger.ended_failed(id, true);
                }
            }
            Action::Revoked { epoch, scope } => {
                self.procs[pid].links[li].to_apply.push_back((epoch, scope, false));
            }
            Action::RevokeAcked { epoch } => self.procs[pid].links[li].revocations.on_ack(epoch),
            Action::Transport { bytes, .. } => self.on_message(pid, li, &bytes),
            Action::Lost(cause) => self.on_lost(pid, li, &cause),
            other => self.ledger.broken(format!("unknown action {other:?}")),
        }
    }

    fn send(&mut self, pid: usize, li: usize, frame: &Frame) {
        let link = &self.procs[pid].links[li];
        let mut bytes = Vec::new();
        if let Err(error) = frame.encode_into(&mut bytes) {
            self.ledger.broken(format!("a session made a frame that can't be sent: {error}"));
        }
        self.conns[link.conn].send(link.side, bytes, self.now, &mut self.rng);
    }

    pub(crate) fn command(&mut self, pid: usize, li: usize, command: Command) -> bool {
        let now = self.instant();
        let Some(session) = &mut self.procs[pid].links[li].session else {
            return false;
        };
        let accepted = session.command(now, command).is_ok();
        self.pump(pid, li);
        accepted
    }

    /// Target: who has proven itself comes in, unless it is known as dead.
    fn admit(&mut self, pid: usize, li: usize, peer: Identity) {
        let is_alive = self.procs.iter().any(|process| process.identity == peer && process.is_alive());
        if self.procs[pid].table.inbound(&peer) == Inbound::Dead {
            if is_alive {
                self.ledger.broken(format!("{} is alive and refused as dead", peer.name));
            }
            self.command(pid, li, Command::Refuse(Refusal::Dead));
            return;
        }
        for old in 0..self.procs[pid].links.len() {
            let link = &mut self.procs[pid].links[old];
            let same = link.side == TARGET && link.peer.as_ref() == Some(&peer);
            if let Some(session) = link.session.as_mut().filter(|_| same) {
                session.channel_lost(ChannelLoss::Superseded);
                self.pump(pid, old);
            }
        }
        let process = &mut self.procs[pid];
        process.links[li].peer = Some(peer.clone());
        let parked = process.parked.remove(&peer).filter(|_| self.bug != Bug::ForgetReceiver);
        let receiver = parked.unwrap_or_else(|| NotifyReceiver::new(INBOX));
        let alive = (0..process.regions.len() as u64)
            .map(RegionId)
            .filter(|id| !process.regions[id.0 as usize].revoked)
            .collect();
        let below = match self.bug {
            Bug::NoLiveRegions => 0,
            _ => process.regions.len() as u64,
        };
        let live = LiveRegions::new(below, alive);
        self.command(pid, li, Command::Admit { receiver, live });
    }

    fn deliver(&mut self, pid: usize, li: usize, payload: &[u8]) {
        let Some(from) = self.procs[pid].links[li].peer.clone() else {
            return self.ledger.broken("notification from nobody");
        };
        let identity = self.procs[pid].identity.clone();
        let note = payload.first_chunk().map_or(u64::MAX, |note| u64::from_le_bytes(*note));
        self.ledger.delivered(note, pid, &identity);
        let cost = notification_cost(payload.len());
        self.procs[pid].inbox.push_back(Held { from: from.clone(), cost });
        if self.procs[pid].held_of(&from) > INBOX {
            self.ledger.broken(format!("the inbox of process {pid} holds more than its bound"));
        }
        if self.bug == Bug::EarlyCredit {
            self.command(pid, li, Command::Drained { bytes: cost });
        }
    }

    /// Initiator: the target's engine has the notification of this transfer.
    fn note_acked(&mut self, pid: usize, index: usize) {
        let transfer = &mut self.procs[pid].transfers[index];
        if transfer.phase == Phase::Landed {
            transfer.phase = Phase::Done;
            let id = (pid, index, transfer.attempt);
            self.ledger.ended_done(id, transfer.delegated);
        }
    }

    /// The notification of a transfer whose data has landed.
    fn issue(&mut self, pid: usize, index: usize) {
        let transfer = &mut self.procs[pid].transfers[index];
        let (link, note, attempt) = (transfer.link, transfer.note, transfer.attempt);
        let Some((reservation, note)) = transfer.reservation.take().zip(note) else {
            return;
        };
        let token = Some(index as u64);
        if !self.command(pid, link, Command::Notify { reservation, token }) {
            self.procs[pid].transfers[index].phase = Phase::Failed;
            self.ledger.ended_failed((pid, index, attempt), false);
            return;
        }
        self.ledger.issued(note);
        if self.bug == Bug::DoneWhenSent {
            self.note_acked(pid, index);
        }
    }

    /// The peer has taken memory or operations back: first the marks, in a step of its own.
    fn mark_revoked(&mut self, pid: usize, li: usize, scope: &RevokeScope) {
        let process = &mut self.procs[pid];
        let link = &mut process.links[li];
        link.revoked.extend(&scope.regions);
        link.all_revoked |= scope.all;
        if let (INITIATOR, Some(peer)) = (link.side, &link.peer) {
            process.table.revoked(peer, &scope.regions).expect("few regions");
            if let Some(peer) = process.peers.get_mut(&peer.name) {
                peer.regions.retain(|id| !scope.regions.contains(id));
            }
        }
        for served in process.served.iter_mut().filter(|served| served.link == li) {
            served.revoked |=
                scope.all || scope.ops.contains(&served.op) || scope.regions.contains(&served.remote);
        }
        for index in 0..process.transfers.len() {
            let transfer = &self.procs[pid].transfers[index];
            let touched = scope.all || scope.regions.contains(&transfer.remote);
            if transfer.link == li && !transfer.delegated && touched {
                self.fail_transfer(pid, index);
            }
        }
    }

    fn acknowledge(&mut self, pid: usize, li: usize, epoch: u64) {
        self.procs[pid].links[li].acknowledged = epoch;
        self.command(pid, li, Command::Applied { epoch });
    }

    /// Looks at the busy words of the peer's copiers.
    pub(crate) fn sample(&mut self, pid: usize, li: usize) {
        let link = &mut self.procs[pid].links[li];
        let Some(page) = link.page else {
            return;
        };
        link.revocations.on_busy_words(&self.pages[page].busy[1 - link.side]);
        let peer_pid = self.conns[link.conn].pids[1 - link.side];
        if !self.procs[peer_pid].is_alive() {
            self.procs[pid].links[li].revocations.on_copier_dead();
        }
    }

    /// Owner: nothing of an earlier epoch may begin any more. Returns the epoch to wait for, if there is a page.
    pub(crate) fn revoke(&mut self, pid: usize, li: usize, scope: RevokeScope, until: u64) -> Option<u64> {
        let deadline = self.base + Duration::from_micros(until);
        let link = &mut self.procs[pid].links[li];
        let page = &mut self.pages[link.page?];
        page.epoch[link.side] += 1;
        let epoch = page.epoch[link.side];
        link.revocations.begin(epoch, scope.clone(), deadline).expect("one thread bumps and begins");
        self.command(pid, li, Command::Revoke { epoch, scope });
        Some(epoch)
    }
}
