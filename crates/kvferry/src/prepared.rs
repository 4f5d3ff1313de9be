use std::sync::Arc;

use kvferry_proto::BlockList;

use crate::{peer::Peer, region::LocalRegion, transport::RemoteRef};

/// A list of blocks that was checked once and is bound to the regions that it lies in.
///
/// Transfers name it and pick blocks of it by index. Grid rows stay rows. Clones share the list.
#[derive(Clone, Debug)]
pub struct PreparedList {
    pub(crate) list: Arc<BlockList>,
    pub(crate) side: ListSide,
    /// Tells agents apart: a list serves the agent that prepared it.
    pub(crate) agent: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum ListSide {
    Local(Arc<[Arc<LocalRegion>]>),
    Remote(Arc<Peer>, Arc<[RemoteRef]>),
}

impl PreparedList {
    /// Number of blocks, all rows expanded.
    pub fn len(&self) -> u64 {
        self.list.len()
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of all blocks together.
    pub fn bytes(&self) -> u64 {
        self.list.bytes()
    }

    /// The peer whose memory it names, or `None` for a list of our own.
    pub fn peer(&self) -> Option<&str> {
        match &self.side {
            ListSide::Local(_) => None,
            ListSide::Remote(peer, _) => Some(&peer.name),
        }
    }
}

/// Which blocks of a prepared list take part in a transfer, and in which order.
#[derive(Clone, Copy, Debug)]
pub enum Indices<'a> {
    /// All, in the order of the list.
    All,
    /// Those at these indices.
    List(&'a [u32]),
}

impl<'a> From<&'a [u32]> for Indices<'a> {
    fn from(indices: &'a [u32]) -> Self {
        Self::List(indices)
    }
}

impl<'a> From<&'a Vec<u32>> for Indices<'a> {
    fn from(indices: &'a Vec<u32>) -> Self {
        Self::List(indices)
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Indices<'a> {
    fn from(indices: &'a [u32; N]) -> Self {
        Self::List(indices)
    }
}
