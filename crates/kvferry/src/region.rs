//! Registered memory on this side.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvferry_proto::{RegionDesc, RegionId, RegionKey};
use kvferry_sys::{RegionSlice, SharedMemory, Touch};

/// Memory that can be registered safely: whoever implements this vouches for it.
///
/// # Safety
/// Each range that [`RegionOwner::regions`] names must, from the registration until the value is dropped:
/// - be mapped readable and writable, and belong to the value;
/// - be memory that peers may read and write at any time: no Rust reference to its bytes exists while it is
///   registered, except of a type that allows it to change underneath (`AtomicU8`, `UnsafeCell`).
pub unsafe trait RegionOwner: Send + Sync + 'static {
    /// The ranges, in the order in which their ids are returned.
    fn regions(&self) -> Vec<RegionDesc>;
}

/// A registered region of this agent, as transports see it.
pub struct LocalRegion {
    id: RegionId,
    key: RegionKey,
    desc: RegionDesc,
    backing: Backing,
    whole: RegionSlice,
    /// Set once and for ever when it is taken back.
    gone: AtomicBool,
    /// Keeps safely registered memory alive for as long as anything holds the region.
    _owner: Option<Owner>,
}

/// What a registration keeps alive.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// What the memory of a region is.
#[derive(Clone)]
#[non_exhaustive]
pub enum Backing {
    /// Memory of this process that no other can map.
    Private {
        /// How it may be touched.
        touch: Touch,
    },
    /// Inside memory that was allocated by this agent, and that a peer of this host can map.
    Shared {
        /// The allocation.
        memory: Arc<SharedMemory>,
        /// The number of its memfd among those of the agent.
        memfd: u64,
        /// Where in it the region begins, in bytes.
        offset: u64,
    },
}

/// A registered region as [`regions`](crate::Agent::regions) lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// Its id, never reused.
    pub id: RegionId,
    /// Where it is.
    pub desc: RegionDesc,
    /// Whether it lies in memory that a peer of this host can map.
    pub shared: bool,
    /// Whether it is being deregistered and a peer has not let go of it yet.
    pub quarantined: bool,
}

impl LocalRegion {
    /// # Safety
    /// The range is memory as [`RegionOwner`] asks for, of the kind that `backing` says, for as long as the
    /// region and whatever is sliced from it are used.
    pub(crate) unsafe fn new(
        (id, key): (RegionId, RegionKey),
        desc: RegionDesc,
        backing: Backing,
        owner: Option<Owner>,
    ) -> Self {
        // SAFETY: the caller vouches for the range, and `backing` for how it may be touched.
        let whole = unsafe { RegionSlice::new(desc.addr, desc.len, backing.touch()) };
        Self { id, key, desc, backing, whole, gone: AtomicBool::new(false), _owner: owner }
    }

    /// Its id, never reused.
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// What a peer must show to name the region on a wire.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// Where it is.
    pub fn desc(&self) -> RegionDesc {
        self.desc
    }

    /// What its memory is.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Whether it is being deregistered, or is so already: no new copy may touch it.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Marks it as gone. What copies looks at the mark after it has announced itself, and whoever takes the region
    /// back looks for announced copies after the mark: one of the two sees the other.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// The `len` bytes from address `addr` on; None if they do not lie wholly inside.
    ///
    /// The slice does not keep the memory alive: hold the region until the copy is over.
    pub fn slice(&self, addr: u64, len: u64) -> Option<RegionSlice> {
        self.whole.slice(addr.checked_sub(self.desc.addr)?, len)
    }
}

impl fmt::Display for LocalRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {} ({}, {})", self.id, self.desc, self.backing)
    }
}

impl fmt::Debug for LocalRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalRegion({self}, gone: {})", self.is_gone())
    }
}

impl Backing {
    /// How the memory may be touched.
    pub fn touch(&self) -> Touch {
        match self {
            Self::Private { touch } => *touch,
            // Its size is sealed.
            Self::Shared { .. } => Touch::LoadStore,
        }
    }

    /// Whether a peer of this host can map it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private { touch: Touch::LoadStore } => f.write_str("private"),
            Self::Private { touch: Touch::Syscall } => f.write_str("private, by system calls only"),
            Self::Shared { memfd, offset, .. } => write!(f, "shared, memfd {memfd} at {offset:#x}"),
        }
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backing({self})")
    }
}
