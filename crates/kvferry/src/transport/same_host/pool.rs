use std::{
    fmt, io,
    sync::{
        Arc, Mutex, RwLock, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};

use kvferry_proto::Chunk;
use kvferry_sys::{COPIERS, HandleRing};

use super::{board::Board, copy::Lists};
use crate::transport::Backlog;

/// Busy words of the pool's own threads.
const POOL_SLOTS: usize = 14;

/// Busy words of callers that copy inline.
const INLINE_SLOTS: usize = 14;

/// Busy words of the threads of wire transports, which touch our own memory only.
pub(crate) const WIRE_SLOTS: std::ops::Range<usize> = POOL_SLOTS + INLINE_SLOTS..COPIERS;

/// Operations that can be queued at once.
const RING: usize = 1 << 16;

/// A copy that takes longer than this gets a substitute thread: it may be tearing down a dying process, or wait for a page.
pub(super) const SLOW: Duration = Duration::from_millis(20);

/// The copy threads of an agent.
pub(crate) struct CopyPool {
    pub(super) board: Arc<Board>,
    ring: HandleRing,
    works: RwLock<Works>,
    /// Changes whenever there may be new work.
    bell: AtomicU32,
    sleepers: AtomicU32,
    /// When each pool slot began its chunk, in nanoseconds since `born` plus one; 0 while idle.
    began: [AtomicU64; POOL_SLOTS],
    /// Slots whose thread is in a slow copy and has been replaced.
    stuck: [AtomicBool; POOL_SLOTS],
    active: AtomicUsize,
    threads: Mutex<Threads>,
    inline: [Mutex<Buffers>; INLINE_SLOTS],
    stopping: AtomicBool,
    born: Instant,
    /// Asks the watch to tick while copies run.
    attend: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Works {
    slots: Vec<(u32, Option<Weak<dyn Work>>)>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Threads {
    wanted: usize,
    used: [bool; POOL_SLOTS],
}

/// Something that copies chunk by chunk.
pub(super) trait Work: Send + Sync + fmt::Debug {
    /// Copies a chunk, or finds that there is none.
    fn run(self: Arc<Self>, copier: &mut Copier<'_>) -> Step;

    /// Set while the work waits in the ring.
    fn queued(&self) -> &AtomicBool;
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The same thread is to go on, since the ring had no room.
    Again,
    /// Finished, handed on, or waiting to be queued again.
    Leave,
}

/// What a thread copies with.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) lists: Lists,
    pub(super) chunk: Chunk,
}

/// A thread with its busy words and buffers.
pub(super) struct Copier<'a> {
    pub(super) pool: &'a CopyPool,
    pub(super) slot: usize,
    pub(super) buffers: &'a mut Buffers,
    /// Whether this is a thread of the pool (rather than a caller that copies inline).
    pooled: bool,
}

impl Copier<'_> {
    /// Lets another thread go on with the work while this one copies. False if this thread must see to it afterwards.
    pub(super) fn share(&self, handle: u64, queued: &AtomicBool) -> bool {
        self.pooled && self.pool.enqueue(handle, queued).is_ok()
    }
}

impl CopyPool {
    pub(crate) fn new(threads: usize, attend: Box<dyn Fn() + Send + Sync>) -> io::Result<Arc<Self>> {
        let wanted = threads.clamp(1, POOL_SLOTS / 2);
        let pool = Arc::new(Self {
            board: Arc::new(Board::new()),
            ring: HandleRing::with_capacity(RING),
            works: RwLock::default(),
            bell: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            began: Default::default(),
            stuck: Default::default(),
            active: AtomicUsize::new(0),
            threads: Mutex::new(Threads { wanted, used: [false; POOL_SLOTS] }),
            inline: Default::default(),
            stopping: AtomicBool::new(false),
            born: Instant::now(),
            attend,
        });
        for _ in 0..wanted {
            if let Err(error) = pool.start_thread() {
                pool.stop();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// What guards our own memory.
    pub(crate) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// Takes in a work and returns the handle to queue it by.
    pub(super) fn adopt(&self, work: Weak<dyn Work>) -> u64 {
        let mut works = self.works.write().unwrap_or_else(|e| e.into_inner());
        let slot = match works.free.pop() {
            Some(slot) => {
                works.slots[slot as usize].1 = Some(work);
                slot
            }
            None => {
                works.slots.push((1, Some(work)));
                works.slots.len() as u32 - 1
            }
        };
        u64::from(works.slots[slot as usize].0) << 32 | u64::from(slot)
    }

    /// Forgets a work. Its handle, if still queued, leads nowhere.
    pub(super) fn disown(&self, handle: u64) {
        let mut works = self.works.write().unwrap_or_else(|e| e.into_inner());
        let slot = (handle & 0xffff_ffff) as usize;
        if let Some(entry) = works.slots.get_mut(slot)
            && u64::from(entry.0) == handle >> 32
        {
            *entry = (entry.0.wrapping_add(1), None);
            works.free.push(slot as u32);
        }
    }

    /// Queues a work unless it is queued already. Takes no lock.
    pub(super) fn enqueue(&self, handle: u64, queued: &AtomicBool) -> Result<(), Backlog> {
        if queued.swap(true, SeqCst) {
            return Ok(());
        }
        if self.ring.push(handle).is_err() {
            queued.store(false, SeqCst);
            return Err(Backlog);
        }
        fence(SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            self.bell.fetch_add(1, SeqCst);
            kvferry_sys::unpark(&self.bell, 1);
        }
        Ok(())
    }

    /// Runs `f` as a copier in the calling thread, if a slot is free.
    pub(super) fn inline<R>(&self, f: impl FnOnce(&mut Copier<'_>) -> R) -> Option<R> {
        for (i, slot) in self.inline.iter().enumerate() {
            if let Ok(mut buffers) = slot.try_lock() {
                let mut copier =
                    Copier { pool: self, slot: POOL_SLOTS + i, buffers: &mut buffers, pooled: false };
                return Some(f(&mut copier));
            }
        }
        None
    }

    /// Whether any thread of the pool is in a chunk.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(SeqCst) > 0
    }

    /// Gives a substitute to every thread that has been in one chunk for too long.
    pub(crate) fn relieve(self: &Arc<Self>) {
        let now = self.now();
        let slow = SLOW.as_nanos() as u64;
        for slot in 0..POOL_SLOTS {
            let began = self.began[slot].load(SeqCst);
            if began == 0 || now.saturating_sub(began) < slow {
                continue;
            }
            if self.stuck[slot].swap(true, SeqCst) {
                continue;
            }
            tracing::debug!(target: "kvferry::transfer", "a copy takes longer than {SLOW:?}: starting a substitute thread");
            if let Err(error) = self.start_thread() {
                tracing::warn!(target: "kvferry::transfer", "no substitute for a slow copy thread: {error}");
            }
        }
    }

    /// Asks all threads to end after their chunk.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.bell.fetch_add(1, SeqCst);
        kvferry_sys::unpark(&self.bell, u32::MAX);
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut threads = crate::lock(&self.threads);
        let Some(slot) = threads.used.iter().position(|used| !used) else {
            // All slots hang: nothing more can be done for the others.
            return Ok(());
        };
        let pool = self.clone();
        kvferry_sys::spawn_quiet("kvferry-copy", move || pool.work(slot))?;
        threads.used[slot] = true;
        Ok(())
    }

    fn work(self: Arc<Self>, slot: usize) {
        let mut buffers = Buffers::default();
        let mut copier = Copier { pool: &self, slot, buffers: &mut buffers, pooled: true };
        while !self.stopping.load(SeqCst) {
            let Some(handle) = self.ring.pop() else {
                self.sleep();
                continue;
            };
            let Some(work) = self.work_of(handle) else { continue };
            // Whoever submits from now on queues it again.
            work.queued().store(false, SeqCst);
            self.begin(slot);
            while work.clone().run(&mut copier) == Step::Again {
                self.begin(slot);
            }
            drop(work);
            if !self.end(slot) {
                return;
            }
        }
        crate::lock(&self.threads).used[slot] = false;
    }

    pub(super) fn work_of(&self, handle: u64) -> Option<Arc<dyn Work>> {
        let works = self.works.read().unwrap_or_else(|e| e.into_inner());
        let (generation, work) = works.slots.get((handle & 0xffff_ffff) as usize)?;
        if u64::from(*generation) != handle >> 32 {
            return None;
        }
        work.as_ref()?.upgrade()
    }

    fn begin(&self, slot: usize) {
        if self.began[slot].swap(self.now(), SeqCst) == 0 && self.active.fetch_add(1, SeqCst) == 0 {
            (self.attend)();
        }
    }

    /// Marks the end of a chunk; false if this thread was replaced meanwhile and is not needed any more.
    fn end(&self, slot: usize) -> bool {
        self.began[slot].store(0, SeqCst);
        self.active.fetch_sub(1, SeqCst);
        if !self.stuck[slot].swap(false, SeqCst) {
            return true;
        }
        let mut threads = crate::lock(&self.threads);
        let at_work = (0..POOL_SLOTS).filter(|&s| threads.used[s] && !self.stuck[s].load(SeqCst)).count();
        let needed = at_work <= threads.wanted;
        threads.used[slot] = needed;
        needed
    }

    fn sleep(&self) {
        let heard = self.bell.load(SeqCst);
        self.sleepers.fetch_add(1, SeqCst);
        fence(SeqCst);
        if self.ring.is_empty() && !self.stopping.load(SeqCst) {
            kvferry_sys::park(&self.bell, heard, None);
        }
        self.sleepers.fetch_sub(1, Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

impl fmt::Debug for CopyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyPool")
            .field("queued", &self.ring.len())
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}
