//! Memory whose every word is checked.

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kvferry::{Agent, MemoryKind, RegionDesc, SharedBuf};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags},
};

use crate::harness::{Audit, MARK, Memory, Mismatch, PATTERN_STEP, POISON, Part, Scan, pattern};

const WORD: u64 = 8;

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Area {
    addr: u64,
    len: u64,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Mapped,
    File(File),
    /// Unmaps itself.
    Shared {
        _buf: SharedBuf,
    },
}

impl Area {
    /// `bytes` of memory, whole words, all of it present.
    pub(super) fn new(agent: &Agent, memory: Memory, bytes: u64) -> Result<Self, String> {
        if bytes == 0 || !bytes.is_multiple_of(WORD) {
            return Err(format!("{bytes} bytes are no whole words"));
        }
        let (addr, backing) = match memory {
            Memory::Shared => {
                let buf = agent.alloc(bytes as usize).map_err(|error| error.to_string())?;
                (buf.addr(), Backing::Shared { _buf: buf })
            }
            Memory::Private => {
                let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
                // SAFETY: a new mapping, at an address of the kernel's choice.
                let addr = unsafe {
                    rustix::mm::mmap_anonymous(
                        std::ptr::null_mut(),
                        bytes as usize,
                        ProtFlags::READ | ProtFlags::WRITE,
                        flags,
                    )
                };
                (addr.map_err(|e| format!("no {bytes} bytes of memory: {e}"))? as u64, Backing::Mapped)
            }
            Memory::File => {
                let fd = file(bytes).map_err(|e| format!("no file of {bytes} bytes: {e}"))?;
                let flags = MapFlags::SHARED | MapFlags::POPULATE;
                // SAFETY: as above.
                let addr = unsafe {
                    rustix::mm::mmap(
                        std::ptr::null_mut(),
                        bytes as usize,
                        ProtFlags::READ | ProtFlags::WRITE,
                        flags,
                        &fd,
                        0,
                    )
                };
                let addr = addr.map_err(|e| format!("a file of {bytes} bytes cannot be mapped: {e}"))?;
                (addr as u64, Backing::File(fd.into()))
            }
        };
        Ok(Self { addr, len: bytes, backing })
    }

    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.addr, len: self.len, kind: MemoryKind::Dram, device: 0 }
    }

    pub(super) fn truncate(&self, bytes: u64) -> Result<(), String> {
        match &self.backing {
            Backing::File(file) => file.set_len(bytes).map_err(|error| error.to_string()),
            _ => Err("only a file can be truncated".into()),
        }
    }

    /// Takes the pages from `offset` on away; nothing of this area may be touched there any more.
    pub(super) fn unmap_from(&mut self, offset: u64) -> Result<(), String> {
        if !matches!(self.backing, Backing::Mapped) || offset >= self.len {
            return Err("only private memory can be unmapped".into());
        }
        // SAFETY: the range is ours, and the area ends before it from now on.
        let unmapped =
            unsafe { rustix::mm::munmap((self.addr + offset) as *mut _, (self.len - offset) as usize) };
        unmapped.map_err(|error| error.to_string())?;
        self.len = offset;
        Ok(())
    }

    pub(super) fn fill(&self, seed: u64) {
        self.in_halves(|from, to| {
            let mut value = pattern(seed, from);
            for word in self.words(from, to) {
                word.store(value, Relaxed);
                value = value.wrapping_add(PATTERN_STEP);
            }
        });
    }

    pub(super) fn poison(&self) {
        self.in_halves(|from, to| self.words(from, to).iter().for_each(|word| word.store(POISON, Relaxed)));
    }

    pub(super) fn mark(&self, offset: u64, step: u64) {
        self.every(offset, step).for_each(|i| self.word(i).store(MARK, Relaxed));
    }

    pub(super) fn unmark(&self, offset: u64, step: u64, seed: u64) {
        self.every(offset, step).for_each(|i| self.word(i).store(pattern(seed, i), Relaxed));
    }

    pub(super) fn marks(&self, offset: u64, step: u64) -> u64 {
        self.every(offset, step).filter(|&i| self.word(i).load(Relaxed) == MARK).count() as u64
    }

    /// Changes with any word. Quicker than a scan, whose digest it is.
    pub(super) fn digest(&self) -> u64 {
        let halves = self.in_halves(|from, to| {
            let (mut digest, mut factor) = (0u64, factor(from));
            for word in self.words(from, to) {
                digest = digest.wrapping_add(word.load(Relaxed).wrapping_mul(factor));
                factor = factor.wrapping_add(2);
            }
            digest
        });
        halves[0].wrapping_add(halves[1])
    }

    /// Counts and digests; then, if asked to, poisons.
    pub(super) fn scan(&self, seed: u64, renew: bool) -> Scan {
        let halves = self.in_halves(|from, to| {
            // Plain variables: in the fields of a structure they would go to memory at each word.
            let (mut digest, mut poison, mut known, mut marks) = (0u64, 0, 0, 0);
            let (mut expected, mut factor) = (pattern(seed, from), factor(from));
            for word in self.words(from, to) {
                let value = word.load(Relaxed);
                digest = digest.wrapping_add(value.wrapping_mul(factor));
                factor = factor.wrapping_add(2);
                poison += u64::from(value == POISON);
                known += u64::from(value == expected);
                marks += u64::from(value == MARK);
                expected = expected.wrapping_add(PATTERN_STEP);
            }
            if renew {
                self.words(from, to).iter().for_each(|word| word.store(POISON, Relaxed));
            }
            Scan { digest, words: to - from, poison, pattern: known, marks }
        });
        halves.into_iter().fold(Scan::default(), |a, b| Scan {
            digest: a.digest.wrapping_add(b.digest),
            words: a.words + b.words,
            poison: a.poison + b.poison,
            pattern: a.pattern + b.pattern,
            marks: a.marks + b.marks,
        })
    }

    /// Whether block `to` holds what block `from` of the pattern does, for each pair `(from, to)`.
    pub(super) fn compare(&self, seed: u64, block: u64, pairs: &[(u32, u32)]) -> Option<Mismatch> {
        let words = block / WORD;
        for (from, to) in pairs {
            let (from, to) = (u64::from(*from) * words, u64::from(*to) * words);
            for i in 0..words {
                let (expected, found) = (pattern(seed, from + i), self.word(to + i).load(Relaxed));
                if expected != found {
                    return Some(Mismatch { offset: (to + i) * WORD, expected, found });
                }
            }
        }
        None
    }

    /// Counts all words by the group of `(from, to)` pairs whose block `to` they lie in, against block `from` of the pattern.
    pub(super) fn audit(&self, seed: u64, block: u64, groups: &[Vec<(u32, u32)>]) -> Audit {
        let words = block / WORD;
        // Of each block: its group, and the first word of what belongs there.
        let mut owners: Vec<Option<(usize, u64)>> = vec![None; (self.len / block) as usize];
        for (group, pairs) in groups.iter().enumerate() {
            for &(from, to) in pairs {
                owners[to as usize] = Some((group, u64::from(from) * words));
            }
        }
        let mut audit = Audit { groups: vec![Part::default(); groups.len()], ..Audit::default() };
        let mut factor = factor(0);
        for (at, owner) in (0..).step_by(words as usize).zip(&owners) {
            let (part, from) = match owner {
                Some((group, from)) => (&mut audit.groups[*group], Some(*from)),
                None => (&mut audit.outside, None),
            };
            let (mut arrived, mut poison, mut marks) = (0, 0, 0);
            let mut expected = pattern(seed, from.unwrap_or_default());
            for (index, word) in (at..).zip(self.words(at, at + words)) {
                let value = word.load(Relaxed);
                audit.digest = audit.digest.wrapping_add(value.wrapping_mul(factor));
                factor = factor.wrapping_add(2);
                let comes = from.is_some() && value == expected;
                arrived += u64::from(comes);
                poison += u64::from(value == POISON);
                marks += u64::from(value == MARK);
                if !comes && value != POISON && value != MARK && part.stray.is_none() {
                    part.stray = Some((index * WORD, value));
                }
                expected = expected.wrapping_add(PATTERN_STEP);
            }
            part.words += words;
            part.arrived += arrived;
            part.poison += poison;
            part.marks += marks;
        }
        audit
    }

    fn every(&self, offset: u64, step: u64) -> impl Iterator<Item = u64> {
        (offset / WORD..self.len / WORD).step_by((step / WORD).max(1) as usize)
    }

    /// The word at an index.
    fn word(&self, index: u64) -> &AtomicU64 {
        &self.words(index, index + 1)[0]
    }

    /// Words by index, which peers may write at any time.
    fn words(&self, from: u64, to: u64) -> &[AtomicU64] {
        assert!(from <= to && to <= self.len / WORD, "words {from} to {to} of {} bytes", self.len);
        // SAFETY: inside the area, which is mapped while `self` lives and aligned, since areas begin at pages; atomics may
        // change underneath.
        unsafe {
            std::slice::from_raw_parts((self.addr + from * WORD) as *const AtomicU64, (to - from) as usize)
        }
    }

    /// Does two halves at once.
    fn in_halves<R: Send>(&self, work: impl Fn(u64, u64) -> R + Sync) -> [R; 2] {
        let words = self.len / WORD;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| work(0, words / 2));
            let second = work(words / 2, words);
            match first.join() {
                Ok(first) => [first, second],
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Backing::Mapped | Backing::File(_) = self.backing {
            // SAFETY: ours, and nobody holds an area that is dropped.
            let _ = unsafe { rustix::mm::munmap(self.addr as *mut _, self.len as usize) };
        }
    }
}

/// What the word at an index counts in a digest. Odd: a change of one word always changes the sum.
fn factor(index: u64) -> u64 {
    2 * index + 1
}

fn file(bytes: u64) -> rustix::io::Result<OwnedFd> {
    // Unsealed: to the engine a file like any other, which may shrink.
    let fd = memfd_create("kvferry-test", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, bytes)?;
    Ok(fd)
}
