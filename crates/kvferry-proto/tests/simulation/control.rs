//! The control thread of a process: it carries frames, timeouts and revocations between the sessions and the rest.

use std::time::Duration;

use kvferry_proto::{
    Action, ByeReason, ChannelLoss, Command, Evidence, Frame, Identity, Inbound, LiveRegions, Loss,
    LostCause, NotifyReceiver, NotifySender, Outcome, ProofKey, Refusal, RegionId, RevokeScope, Session,
    SessionConfig, notification_cost,
};

use crate::bug::Bug;
use crate::net::{Conn, INITIATOR, Page, TARGET};
use crate::process::{Held, Link, Phase, Served, Work};
use crate::world::{DEATH_NOTICE, FOREVER, INBOX, World};

/// Messages of the transport, by their first number.
const ATTACH: u64 = 1;
const OPERATION: u64 = 2;
const OPERATION_DONE: u64 = 3;
const OPERATION_FAILED: u64 = 4;

fn pack(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn unpack(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

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
                    self.message(pid, li, &[ATTACH, page as u64]);
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
            Action::Transport { bytes, .. } => self.on_message(pid, li, &unpack(&bytes)),
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

    fn message(&mut self, pid: usize, li: usize, numbers: &[u64]) {
        self.command(pid, li, Command::Transport { bytes: pack(numbers), fds: 0 });
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

    fn on_message(&mut self, pid: usize, li: usize, numbers: &[u64]) {
        let process = &mut self.procs[pid];
        let link = &mut process.links[li];
        match *numbers {
            [ATTACH, page] if link.side == INITIATOR => {
                link.page = Some(page as usize);
                self.command(pid, li, Command::Attached);
            }
            [OPERATION, index, attempt, is_write, remote, local, chunks] if link.side == TARGET => {
                let owner = self.conns[link.conn].pids[INITIATOR];
                let served = Served {
                    link: li,
                    op: op_number(index as usize, attempt as u32),
                    id: (owner, index as usize, attempt as u32),
                    remote: RegionId(remote),
                    local: RegionId(local),
                    is_write: is_write == 1,
                    left: chunks as u32,
                    inflight: 0,
                    revoked: false,
                    failed: process.regions[local as usize].revoked,
                    reported: false,
                };
                let work = Work::Served { served: process.served.len() };
                process.served.push(served);
                process.work.extend(std::iter::repeat_n(work, chunks as usize));
            }
            [OPERATION_DONE | OPERATION_FAILED, index, attempt] if link.side == INITIATOR => {
                let index = index as usize;
                let transfer = &mut process.transfers[index];
                if transfer.attempt as u64 != attempt || transfer.link != li || transfer.inflight == 0 {
                    return;
                }
                transfer.inflight = 0;
                if numbers[0] == OPERATION_DONE {
                    transfer.left = 0;
                    self.land_transfer(pid, index);
                } else {
                    self.fail_transfer(pid, index);
                }
            }
            _ => self.ledger.broken(format!("message {numbers:?} makes no sense")),
        }
    }

    /// Target: tells the initiator what has become of its operations.
    fn report_served(&mut self, pid: usize) {
        for index in 0..self.procs[pid].served.len() {
            let served = &mut self.procs[pid].served[index];
            let ended = served.left == 0 || served.failed;
            if served.reported || served.revoked || served.inflight > 0 || !ended {
                continue;
            }
            served.reported = true;
            let verdict = if served.left == 0 { OPERATION_DONE } else { OPERATION_FAILED };
            let (li, (_, transfer, attempt)) = (served.link, served.id);
            self.message(pid, li, &[verdict, transfer as u64, u64::from(attempt)]);
        }
    }

    /// Initiator: asks the target to copy.
    pub(crate) fn delegate(&mut self, pid: usize, index: usize) {
        let transfer = &self.procs[pid].transfers[index];
        let (li, is_write) = (transfer.link, u64::from(transfer.is_write));
        let (local, remote) = (transfer.local.0, transfer.remote.0);
        let (attempt, chunks) = (u64::from(transfer.attempt), u64::from(transfer.left));
        self.message(pid, li, &[OPERATION, index as u64, attempt, is_write, local, remote, chunks]);
    }

    /// Initiator: what the target may still do of ended transfers is over once the revocation is quiet.
    pub(crate) fn settle_delegated(&mut self, pid: usize) {
        let now = self.instant();
        for index in 0..self.procs[pid].transfers.len() {
            let transfer = &self.procs[pid].transfers[index];
            let Some(epoch) = transfer.quiet_at.filter(|_| transfer.inflight > 0) else {
                continue;
            };
            let li = transfer.link;
            self.sample(pid, li);
            if self.procs[pid].links[li].revocations.outcome(epoch, now) == Outcome::Quiet {
                self.procs[pid].transfers[index].inflight = 0;
            }
        }
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

    fn on_lost(&mut self, pid: usize, li: usize, cause: &LostCause) {
        if let LostCause::Violation(violation) = cause {
            self.ledger.broken(format!("an honest peer violates the protocol: {violation}"));
        }
        if let LostCause::Bye { reason: ByeReason::Violation, text } = cause {
            self.ledger.broken(format!("an honest peer is accused: {text}"));
        }
        self.ledger.seen.silent += u64::from(*cause == LostCause::Silent);
        let link = &mut self.procs[pid].links[li];
        let Some(session) = link.session.take() else {
            return;
        };
        let (sender, receiver) = session.into_notify();
        link.up = false;
        link.closing = true;
        // Nothing is copied over this link any more, and the next connection tells what is gone.
        link.to_apply.clear();
        let (conn, side, peer) = (link.conn, link.side, link.peer.clone());
        self.conns[conn].closed[side] = true;
        // The connection is over, but a copier of the peer may be in the middle of a chunk.
        let quiet_at = match self.bug {
            Bug::ForgetOldPages => None,
            _ => self.revoke(pid, li, RevokeScope::all(), FOREVER),
        };
        if quiet_at.is_none() {
            self.procs[pid].links[li].retired = true;
        }
        for served in self.procs[pid].served.iter_mut().filter(|served| served.link == li) {
            served.revoked = true;
        }
        self.end_transfers(pid, li, quiet_at);
        let Some(peer) = peer else {
            return;
        };
        match receiver {
            Some(receiver) => {
                self.procs[pid].parked.insert(peer.clone(), receiver);
                if *cause == LostCause::Channel(ChannelLoss::Died) {
                    self.lose_peer(pid, &peer, Loss::Dead);
                }
            }
            None if side == INITIATOR => self.lost_as_initiator(pid, li, cause, &peer, sender),
            None => {}
        }
    }

    fn lost_as_initiator(
        &mut self,
        pid: usize,
        li: usize,
        cause: &LostCause,
        identity: &Identity,
        sender: Option<NotifySender>,
    ) {
        let reconnect_at = self.now + self.rng.range(10, 3000);
        let peer = self.procs[pid].peers.get_mut(&identity.name);
        let Some(peer) = peer.filter(|peer| peer.link == Some(li)) else {
            return self.ledger.sender_gone(pid, identity);
        };
        peer.link = None;
        if cause.may_reconnect() && !peer.reconnected {
            peer.reconnected = true;
            peer.sender = sender;
            peer.reconnect_at = Some(reconnect_at);
            return;
        }
        let dead = matches!(
            cause,
            LostCause::Channel(ChannelLoss::Died)
                | LostCause::Refused(Refusal::WrongIncarnation { .. })
                | LostCause::Rejected(Refusal::WrongIncarnation { .. })
        );
        self.lose_peer(pid, identity, if dead { Loss::Dead } else { Loss::Presumed });
    }

    /// The transfers of a link that is over, or will be, fail. What the target copies ends with `quiet_at`.
    pub(crate) fn end_transfers(&mut self, pid: usize, li: usize, quiet_at: Option<u64>) {
        for index in 0..self.procs[pid].transfers.len() {
            let transfer = &mut self.procs[pid].transfers[index];
            if transfer.link != li {
                continue;
            }
            if transfer.delegated && transfer.inflight > 0 {
                match quiet_at {
                    Some(epoch) => transfer.quiet_at = Some(epoch),
                    None => transfer.inflight = 0,
                }
            }
            self.fail_transfer(pid, index);
        }
    }

    /// The peer is gone: metadata, notifications and links go with it.
    pub(crate) fn lose_peer(&mut self, pid: usize, identity: &Identity, loss: Loss) {
        let process = &mut self.procs[pid];
        if loss == Loss::Dead {
            process.saw_die.insert(identity.clone());
        }
        let loss = if self.bug == Bug::ForgetDeaths { Loss::Presumed } else { loss };
        if process.table.lost(identity, loss) {
            self.forget_peer(pid, &identity.name, ByeReason::Closed);
        }
    }

    /// The outbound side of a peer that is lost, replaced or removed.
    pub(crate) fn forget_peer(&mut self, pid: usize, name: &str, reason: ByeReason) {
        let Some(peer) = self.procs[pid].peers.remove(name) else {
            return;
        };
        self.ledger.sender_gone(pid, &peer.identity);
        if let Some(li) = peer.link {
            self.close(pid, li, reason);
        }
    }

    pub(crate) fn close(&mut self, pid: usize, li: usize, reason: ByeReason) {
        self.procs[pid].links[li].closing = true;
        self.command(pid, li, Command::Close { reason, text: String::new() });
    }

    fn reconnect(&mut self, pid: usize) -> bool {
        let now = self.now;
        let due =
            self.procs[pid].peers.iter().find(|(_, peer)| peer.reconnect_at.is_some_and(|at| at <= now));
        let Some(name) = due.map(|(name, _)| name.clone()) else {
            return false;
        };
        self.ledger.seen.reconnects += 1;
        self.connect(pid, &name);
        true
    }

    /// Opens a connection to the peer of this name, as its metadata says.
    pub(crate) fn connect(&mut self, pid: usize, name: &str) {
        // An endpoint with a random name belongs to one incarnation, a path to whoever bound it last.
        let by_path = self.rng.once_in(2);
        let found = self.procs.iter().position(|process| {
            let identity = &self.procs[pid].peers[name].identity;
            process.is_alive()
                && (process.identity == *identity || (by_path && process.identity.name == *name))
        });
        let next = self.procs[pid].links.len();
        let Some(peer) = self.procs[pid].peers.get_mut(name) else {
            return;
        };
        peer.reconnect_at = None;
        let identity = peer.identity.clone();
        let Some(target) = found else {
            return self.lose_peer(pid, &identity, Loss::Presumed);
        };
        let sender = peer.sender.take().unwrap_or_default();
        peer.link = Some(next);
        self.procs[pid].credits.insert(name.to_owned(), sender.credit());
        let secret = self.secret_of(&identity);
        let now = self.instant();
        let session = Session::initiator(now, self.config(pid, &secret), identity.clone(), sender);
        let conn = self.conns.len();
        self.conns.push(Conn::new(pid, target));
        let evidence = self.evidence();
        self.procs[pid].links.push(Link::new(conn, session, Some(identity), evidence));

        let secret = self.procs[target].secret;
        let session = Session::target(now, self.config(target, &secret));
        self.procs[target].links.push(Link::new(conn, session, None, evidence));
        self.pump(pid, next);
    }

    fn config(&mut self, pid: usize, secret: &[u8; 32]) -> SessionConfig {
        SessionConfig {
            own: self.procs[pid].identity.clone(),
            key: ProofKey::derive(secret, None),
            token_in_force: false,
            nonce: self.rng.bytes(),
            handshake_timeout: Duration::from_millis(400),
            close_timeout: Duration::from_millis(50),
            silence_timeout: self.silence,
        }
    }

    fn evidence(&self) -> Evidence {
        if self.bug == Bug::TrustAcknowledgements { Evidence::Acks } else { Evidence::Words }
    }

    fn secret_of(&self, identity: &Identity) -> [u8; 32] {
        let process = self.procs.iter().find(|process| process.identity == *identity);
        process.expect("metadata comes from processes").secret
    }

    /// A transfer fails before its data has landed.
    pub(crate) fn fail_transfer(&mut self, pid: usize, index: usize) {
        let transfer = &mut self.procs[pid].transfers[index];
        if transfer.phase.is_moving() {
            transfer.phase = Phase::Failed;
            transfer.reservation = None;
            self.ledger.ended_failed((pid, index, transfer.attempt), false);
        }
    }

    /// All chunks of a transfer are copied.
    pub(crate) fn land_transfer(&mut self, pid: usize, index: usize) {
        let process = &mut self.procs[pid];
        let transfer = &mut process.transfers[index];
        if !transfer.phase.is_moving() {
            return;
        }
        if transfer.reservation.is_some() {
            transfer.phase = Phase::Landed;
            process.to_issue.push_back(index);
        } else {
            transfer.phase = Phase::Done;
            self.ledger.ended_done((pid, index, transfer.attempt), transfer.delegated);
        }
    }
}

/// The number of an operation that a target carries out.
pub(crate) fn op_number(index: usize, attempt: u32) -> u64 {
    (index as u64) << 32 | u64::from(attempt)
}
