//! What a target copies for an initiator, and how transfers end.

use kvferry_proto::{Command, Outcome, RegionId};

use crate::net::{INITIATOR, TARGET};
use crate::process::{Phase, Served, Work};
use crate::world::World;

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

/// The number of an operation that a target carries out.
pub(crate) fn op_number(index: usize, attempt: u32) -> u64 {
    (index as u64) << 32 | u64::from(attempt)
}

impl World {
    /// Target: the link's page is there.
    pub(crate) fn send_page(&mut self, pid: usize, li: usize, page: usize) {
        self.message(pid, li, &[ATTACH, page as u64]);
    }

    /// A message of the transport came in.
    pub(crate) fn on_message(&mut self, pid: usize, li: usize, bytes: &[u8]) {
        let numbers = unpack(bytes);
        let process = &mut self.procs[pid];
        let link = &mut process.links[li];
        match numbers[..] {
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
    pub(crate) fn report_served(&mut self, pid: usize) {
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

    fn message(&mut self, pid: usize, li: usize, numbers: &[u64]) {
        self.command(pid, li, Command::Transport { bytes: pack(numbers), fds: 0 });
    }
}
