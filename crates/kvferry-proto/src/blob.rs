//! The metadata blob: what one agent tells others, so that they can reach it and its memory.

mod contents;
mod error;
mod packed;
mod reader;

use serde::{Deserialize, Serialize};

pub use contents::{Capability, Host, Secret};
pub use error::BlobError;

use crate::endpoint::Endpoint;
use crate::peers::{Identity, is_agent_name};
use crate::reach::{MAX_REACH, MAX_REACH_KEY, Reach};
use crate::region::{Incarnation, RegionDesc, RegionId, RegionKey, RemoteRegion};
use crate::tlv::{Sections, push_section};
use reader::Reader;

/// The largest blob, in bytes.
pub const MAX_BLOB: usize = 64 << 20;

/// The most regions that one blob may describe.
pub const MAX_BLOB_REGIONS: usize = 1 << 20;

/// The most endpoints that one blob may list.
pub const MAX_ENDPOINTS: usize = 64;

/// The version of the format that this crate writes, and the only one that it reads.
pub const BLOB_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"KVFERRY\0";
/// Up to here the checksum covers the header: magic, version, length of the sections.
const SUMMED: usize = 14;
const CHECKSUM: usize = 16;
const HEADER: usize = SUMMED + CHECKSUM;

const IDENTITY: u16 = 1;
const HOST: u16 = 2;
const ENDPOINTS: u16 = 3;
const CAPABILITY: u16 = 4;
const REGIONS: u16 = 5;
const PACKED_REGIONS: u16 = 8;

/// What one agent tells others about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Whose it is.
    pub identity: Identity,
    /// Counts the states of the agent's regions; larger is newer.
    pub generation: u64,
    /// Whether this describes only some of the regions, to be added to those of the same
    /// generation. If not, it is complete and says how to connect.
    pub partial: bool,
    /// Where the process runs. Only hints: what matters is proved on connecting.
    pub host: Option<Host>,
    /// Where the agent listens, best first; at most [`MAX_ENDPOINTS`].
    pub endpoints: Vec<Endpoint>,
    /// What lets a peer connect; always there in a complete blob.
    pub capability: Option<Capability>,
    /// The regions; at most [`MAX_BLOB_REGIONS`], each id once.
    pub regions: Vec<RemoteRegion>,
}

#[derive(Serialize, Deserialize)]
struct IdentityWire<'a> {
    name: &'a str,
    incarnation: Incarnation,
    generation: u64,
    partial: bool,
}

impl Blob {
    /// The bytes of the blob.
    ///
    /// # Errors
    /// What [`decode`](Self::decode) would refuse: a name, region or endpoint out of bounds, an id
    /// given twice, too much of anything, a complete blob without a capability.
    pub fn encode(&self) -> Result<Vec<u8>, BlobError> {
        self.check()?;
        let mut out = vec![0; HEADER];
        push_section(&mut out, IDENTITY, true, |out| {
            let Identity { name, incarnation } = &self.identity;
            let (generation, partial) = (self.generation, self.partial);
            put(out, &IdentityWire { name, incarnation: *incarnation, generation, partial })
        })?;
        if let Some(host) = &self.host {
            push_section(&mut out, HOST, false, |out| put(out, host))?;
        }
        if !self.partial || !self.endpoints.is_empty() {
            push_section(&mut out, ENDPOINTS, true, |out| put(out, &self.endpoints))?;
        }
        if let Some(capability) = &self.capability {
            push_section(&mut out, CAPABILITY, true, |out| put(out, capability))?;
        }
        if self.regions.len() >= packed::MANY {
            push_section(&mut out, PACKED_REGIONS, true, |out| packed::put_regions(out, &self.regions))?;
        } else if !self.regions.is_empty() {
            push_section(&mut out, REGIONS, true, |out| {
                put(out, &(self.regions.len() as u32))?;
                self.regions.iter().try_for_each(|region| put_region(out, region))
            })?;
        }
        limit("bytes", out.len(), MAX_BLOB)?;
        seal(&mut out);
        Ok(out)
    }

    /// Reads a blob. It is taken whole or refused whole; sections that this version doesn't know
    /// are passed over unless they are marked critical.
    ///
    /// # Errors
    /// The bytes are no blob, are damaged, of another version, need something this version lacks,
    /// or break a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        limit("bytes", bytes.len(), MAX_BLOB)?;
        check_header(bytes)?;
        let mut identity = None;
        let mut host = None;
        let mut endpoints = None;
        let mut capability = None;
        let mut regions = None;
        for section in Sections::new(bytes, HEADER) {
            let section =
                section.map_err(|cut| BlobError::Malformed { at: cut.at, what: "a section is cut short" })?;
            let name = section_name(section.id);
            let reader = Reader::new(&section, name.unwrap_or("section"));
            match section.id {
                IDENTITY => set_once(&mut identity, "identity", read_identity(reader)?)?,
                HOST => set_once(&mut host, "host", reader.only::<Host>()?)?,
                ENDPOINTS => set_once(&mut endpoints, "endpoints", read_endpoints(reader)?)?,
                CAPABILITY => set_once(&mut capability, "capability", reader.only::<Capability>()?)?,
                REGIONS => set_once(&mut regions, "regions", read_regions(reader)?)?,
                PACKED_REGIONS => set_once(&mut regions, "regions", packed::read_regions(reader)?)?,
                id if section.critical => return Err(BlobError::CriticalSection { id, name }),
                _ => {}
            }
        }
        let Some(identity) = identity else {
            return Err(BlobError::MissingSection { name: "identity" });
        };
        if !identity.partial && endpoints.is_none() {
            return Err(BlobError::MissingSection { name: "endpoints" });
        }
        let blob = Self {
            generation: identity.generation,
            partial: identity.partial,
            identity: Identity { name: identity.name.into(), incarnation: identity.incarnation },
            host,
            endpoints: endpoints.unwrap_or_default(),
            capability,
            regions: regions.unwrap_or_default(),
        };
        blob.check()?;
        Ok(blob)
    }

    // What must hold for every blob, read or to be written.
    fn check(&self) -> Result<(), BlobError> {
        if !is_agent_name(&self.identity.name) {
            return Err(BlobError::Name { len: self.identity.name.len() });
        }
        if !self.partial && self.capability.is_none() {
            return Err(BlobError::MissingSection { name: "capability" });
        }
        limit("endpoints", self.endpoints.len(), MAX_ENDPOINTS)?;
        if let Some(index) = self.endpoints.iter().position(|endpoint| !endpoint.is_valid()) {
            return Err(BlobError::Endpoint { index });
        }
        limit("regions", self.regions.len(), MAX_BLOB_REGIONS)?;
        for (index, RemoteRegion { id, desc, reach, .. }) in self.regions.iter().enumerate() {
            desc.check().map_err(|source| BlobError::Region { index, id: *id, source })?;
            limit("ways to reach a region", reach.len(), MAX_REACH)?;
            for reach in reach {
                limit("bytes of a key", reach.key_len(), MAX_REACH_KEY)?;
            }
        }
        check_distinct(&self.regions)
    }
}

/// Fills in the header in front of the sections.
pub(crate) fn seal(bytes: &mut [u8]) {
    let len = (bytes.len() - HEADER) as u32;
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&BLOB_VERSION.to_le_bytes());
    bytes[10..SUMMED].copy_from_slice(&len.to_le_bytes());
    let sum = checksum(bytes);
    bytes[SUMMED..HEADER].copy_from_slice(&sum);
}

/// A blob of these sections, whatever they are.
pub(crate) fn sealed(sections: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(sections);
    seal(&mut bytes);
    bytes
}

// Over all but itself.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..SUMMED]).update(&bytes[HEADER..]);
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM]);
    sum
}

fn check_header(bytes: &[u8]) -> Result<(), BlobError> {
    if !bytes.starts_with(MAGIC) {
        return Err(BlobError::Malformed { at: 0, what: "this is no metadata of an agent" });
    }
    let cut = BlobError::Malformed { at: bytes.len(), what: "the header is cut short" };
    let Some(&[low, high]) = bytes.get(8..10) else {
        return Err(cut);
    };
    let got = u16::from_le_bytes([low, high]);
    // Before the checksum: another version may have another one.
    if got != BLOB_VERSION {
        return Err(BlobError::Version { got, supported: BLOB_VERSION });
    }
    let Some(sections) = bytes.get(HEADER..) else {
        return Err(cut);
    };
    let len = u32::from_le_bytes([bytes[10], bytes[11], bytes[12], bytes[13]]) as usize;
    if len != sections.len() {
        let what = if len > sections.len() { "the end is missing" } else { "bytes follow the end" };
        return Err(BlobError::Malformed { at: HEADER + len.min(sections.len()), what });
    }
    if bytes[SUMMED..HEADER] != checksum(bytes) {
        return Err(BlobError::Checksum);
    }
    Ok(())
}

// 6 and 7 are set aside for parts that this version can't read.
fn section_name(id: u16) -> Option<&'static str> {
    Some(match id {
        IDENTITY => "identity",
        HOST => "host",
        ENDPOINTS => "endpoints",
        CAPABILITY => "capability",
        REGIONS | PACKED_REGIONS => "regions",
        6 => "encryption",
        7 => "wire transports",
        _ => return None,
    })
}

fn set_once<T>(place: &mut Option<T>, name: &'static str, value: T) -> Result<(), BlobError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(BlobError::DuplicateSection { name }),
    }
}

fn limit(what: &'static str, size: usize, limit: usize) -> Result<(), BlobError> {
    if size > limit { Err(BlobError::TooLarge { what, size, limit }) } else { Ok(()) }
}

fn check_distinct(regions: &[RemoteRegion]) -> Result<(), BlobError> {
    // Ids count up, so they mostly come in order.
    if regions.is_sorted_by(|a, b| a.id < b.id) {
        return Ok(());
    }
    let mut ids: Vec<_> = regions.iter().map(|region| region.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(BlobError::DuplicateRegion { id: pair[0] }),
    }
}

fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), BlobError> {
    let bytes = std::mem::take(out);
    *out = postcard::to_extend(value, bytes).map_err(|_| BlobError::Unwritable)?;
    Ok(())
}

fn put_region(out: &mut Vec<u8>, region: &RemoteRegion) -> Result<(), BlobError> {
    put(out, &(region.id, region.key, region.desc))?;
    put(out, &region.reach)
}

fn read_identity<'a>(reader: Reader<'a>) -> Result<IdentityWire<'a>, BlobError> {
    reader.only()
}

fn read_endpoints(mut reader: Reader<'_>) -> Result<Vec<Endpoint>, BlobError> {
    let count = reader.count("endpoints", MAX_ENDPOINTS)?;
    let endpoints = reader.many(count)?;
    reader.finish()?;
    Ok(endpoints)
}

fn read_regions(mut reader: Reader<'_>) -> Result<Vec<RemoteRegion>, BlobError> {
    let count = reader.count("regions", MAX_BLOB_REGIONS)?;
    // Grows with the bytes that are there, not with the count that is claimed.
    let mut regions = Vec::new();
    for _ in 0..count {
        let (id, key, desc): (RegionId, RegionKey, RegionDesc) = reader.take()?;
        let ways = reader.count("ways to reach a region", MAX_REACH)?;
        let reach: Vec<Reach> = reader.many(ways)?;
        regions.push(RemoteRegion { id, key, desc, reach });
    }
    reader.finish()?;
    Ok(regions)
}

#[cfg(test)]
pub(crate) mod tests;
