use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use kvferry_sys::{Direction, MAX_VECTORS, Pid, RegionSlice, RemoteSlice, SharedMemory, Vectors};

use super::team::at_once;
use crate::layout::{Piece, share_out};
use crate::options::BenchOp;
use crate::pool::Pool;

/// How the near process reaches the far pool by itself.
#[derive(Clone, Copy)]
pub(crate) enum Reached<'a> {
    /// By system call.
    Cma {
        /// The far process.
        pid: Pid,
        /// Where its pool begins.
        base: u64,
    },
    /// Mapped.
    Map(&'a SharedMemory),
}

/// The blocks of a row, shared out to threads and ready to be copied, so that the loop does nothing but copy.
pub(crate) struct Lanes<'a> {
    lanes: Vec<Lane>,
    direction: Direction,
    /// The lanes name ranges of the pool and of the mapping.
    _borrowed: PhantomData<(&'a Pool, &'a SharedMemory)>,
}

enum Lane {
    /// One system call each.
    Calls(Pid, Vec<Vectors>),
    /// Destination and source of each copy.
    Copies(Vec<(RegionSlice, RegionSlice)>),
}

impl<'a> Lanes<'a> {
    pub(crate) fn new(
        pool: &'a Pool,
        reached: Reached<'a>,
        op: BenchOp,
        pieces: &[Piece],
        threads: usize,
    ) -> Result<Self> {
        let direction = match op {
            BenchOp::Read => Direction::Read,
            BenchOp::Write => Direction::Write,
        };
        let lanes = share_out(pieces, threads)
            .into_iter()
            .map(|share| match reached {
                Reached::Cma { pid, base } => calls(pool, base, &share).map(|calls| Lane::Calls(pid, calls)),
                Reached::Map(memory) => copies(pool, memory, op, &share).map(Lane::Copies),
            })
            .collect::<Result<_>>()?;
        Ok(Self { lanes, direction, _borrowed: PhantomData })
    }

    /// Copies everything once, a thread a lane.
    pub(crate) fn run(&self) -> Result<Duration> {
        at_once(self.lanes.iter().collect(), |lane| lane.run(self.direction))
    }

    /// Copies everything once in the calling thread, which takes one call where there is one block.
    pub(crate) fn run_here(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| lane.run(self.direction))
    }
}

impl Lane {
    fn run(&self, direction: Direction) -> Result<()> {
        match self {
            Self::Calls(pid, calls) => {
                for call in calls {
                    call.transfer(direction, *pid)?;
                }
            }
            Self::Copies(copies) => {
                for &(to, from) in copies {
                    kvferry_sys::copy(to, from)?;
                }
                kvferry_sys::copy_fence();
            }
        }
        Ok(())
    }
}

/// System calls of as many vectors as one takes.
fn calls(pool: &Pool, base: u64, pieces: &[Piece]) -> Result<Vec<Vectors>> {
    pieces
        .chunks(MAX_VECTORS)
        .map(|pieces| {
            let mut call = Vectors::new();
            for piece in pieces {
                let remote = RemoteSlice { addr: base + piece.far, len: piece.len };
                ensure!(call.push(pool.slice(piece.near, piece.len)?, remote), "a vector does not fit");
            }
            Ok(call)
        })
        .collect()
}

fn copies(
    pool: &Pool,
    memory: &SharedMemory,
    op: BenchOp,
    pieces: &[Piece],
) -> Result<Vec<(RegionSlice, RegionSlice)>> {
    pieces
        .iter()
        .map(|piece| {
            let near = pool.slice(piece.near, piece.len)?;
            let far = memory.slice(piece.far, piece.len);
            let far = far.ok_or_else(|| anyhow!("a block is outside of the far pool"))?;
            Ok(match op {
                BenchOp::Read => (near, far),
                BenchOp::Write => (far, near),
            })
        })
        .collect()
}
