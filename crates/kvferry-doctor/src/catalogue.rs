//! The records that are built in, with what we know beyond the schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use crate::evidence::Evidences;
use crate::kind::{Kind, Kinds};
use crate::record::Record;
use crate::side::{Family, Role, Side};
use crate::versions::Pair;

mod search;

pub use self::search::Hit;

/// The folder `catalogue/`, packed by the build script.
const PACKED: &str = include_str!(concat!(env!("OUT_DIR"), "/catalogue.json"));

static BUILT_IN: LazyLock<Arc<Catalogue>> = LazyLock::new(|| Arc::new(Catalogue::unpack(PACKED)));

/// Records, their additions, kinds and known bad versions.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: Vec<Entry>,
    by_id: HashMap<String, usize>,
    kinds: Kinds,
    evidences: Evidences,
    pairs: Vec<Pair>,
    own_lines: BTreeMap<String, u32>,
}

/// A record and what we add to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its file, below `catalogue/`.
    pub at: String,
    /// The record.
    pub record: Record,
    /// Our additions. A record from elsewhere has none of its own and counts as a primary of its tag's kind.
    pub side: Side,
}

#[derive(Deserialize)]
struct Packed {
    records: Vec<PackedRecord>,
    sides: HashMap<String, Side>,
    kinds: KindsFile,
    evidence: EvidenceFile,
    versions: VersionsFile,
    lines: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
struct PackedRecord {
    at: String,
    record: Record,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindsFile {
    kind: Kinds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceFile {
    evidence: Evidences,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionsFile {
    pair: Vec<Pair>,
}

impl Catalogue {
    /// What is compiled in.
    pub fn built_in() -> &'static Arc<Self> {
        &BUILT_IN
    }

    fn unpack(packed: &str) -> Self {
        // The build script made it from files that the tests of this crate validate.
        let packed: Packed = match serde_json::from_str(packed) {
            Ok(packed) => packed,
            Err(error) => unreachable!("the catalogue that was compiled in: {error}"),
        };
        let mut sides = packed.sides;
        let mut catalogue = Self {
            entries: Vec::with_capacity(packed.records.len()),
            by_id: HashMap::new(),
            kinds: packed.kinds.kind,
            evidences: packed.evidence.evidence,
            pairs: packed.versions.pair,
            own_lines: packed.lines,
        };
        for PackedRecord { at, record } in packed.records {
            let side = sides.remove(&record.id);
            catalogue.add(at, record, side);
        }
        catalogue
    }

    /// Adds a record, or replaces the one of its id.
    pub fn add(&mut self, at: String, record: Record, side: Option<Side>) {
        let known = self.by_id.get(&record.id).copied();
        let side = side
            .or_else(|| known.map(|index| self.entries[index].side.clone()))
            .unwrap_or_else(|| self.assumed(&record));
        let entry = Entry { at, record, side };
        match known {
            Some(index) => self.entries[index] = entry,
            None => {
                self.by_id.insert(entry.record.id.clone(), self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    /// What can be said of a record that came without additions.
    fn assumed(&self, record: &Record) -> Side {
        let kind = record.background_tag.clone().filter(|tag| self.kinds.contains_key(tag));
        Side {
            kind,
            role: Role::Primary,
            family: Family::Plain,
            rules: Vec::new(),
            alike: Vec::new(),
            discriminators: Vec::new(),
            causes: Vec::new(),
            checks: Vec::new(),
            peer: Vec::new(),
            recovered: Vec::new(),
            examples: Vec::new(),
        }
    }

    /// All entries, by repository and slug.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this id.
    pub fn by_id(&self, id: &str) -> Option<&Entry> {
        self.by_id.get(id).map(|index| &self.entries[*index])
    }

    /// The kinds of cause by name.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// One kind.
    pub fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.get(name)
    }

    /// What shows that failures are over, by name.
    pub fn evidences(&self) -> &Evidences {
        &self.evidences
    }

    /// Pairs of releases that are known to fail together.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The record as it may be published from `repo` at commit `sha`, which only records of our own need.
    pub fn located(&self, record: &Record, repo: &str, sha: &str) -> Record {
        if record.is_own() {
            record.located(repo, sha, self.own_lines.get(record.key()).copied())
        } else {
            record.clone()
        }
    }
}

#[cfg(test)]
mod tests;
