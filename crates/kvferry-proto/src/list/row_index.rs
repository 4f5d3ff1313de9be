//! From the index of a block to its row.

use super::ListRow;

/// How to find the row of a block without searching them all.
#[derive(Debug)]
pub(super) enum RowIndex {
    /// All rows have this many blocks, the last perhaps fewer.
    Even(u64),
    /// `table[n]` is the row of block `n << shift`. There are about as many entries as rows, so
    /// that a search between two neighbours is short.
    Sampled { shift: u32, table: Box<[u32]> },
}

impl RowIndex {
    pub(super) fn new(rows: &[ListRow]) -> Self {
        let first = rows.first().map_or(1, |row| row.count);
        let (last, body) = match rows.split_last() {
            Some((last, body)) => (last.count, body),
            None => (1, rows),
        };
        if body.iter().all(|row| row.count == first) && last <= first {
            return Self::Even(first);
        }
        let blocks = rows.last().map_or(0, |row| row.first + row.count);
        let shift = (blocks / rows.len() as u64).max(1).ilog2();
        let samples = ((blocks - 1) >> shift) + 1;
        let mut table = Vec::with_capacity(samples as usize);
        let mut row = 0;
        for sample in 0..samples {
            let block = sample << shift;
            while rows[row].first + rows[row].count <= block {
                row += 1;
            }
            table.push(row as u32);
        }
        Self::Sampled { shift, table: table.into() }
    }

    /// The row that holds block `index`, which must be in the list.
    #[inline]
    pub(super) fn row_of(&self, rows: &[ListRow], index: u64) -> usize {
        match self {
            // Division is slow, and these two are the usual lists.
            Self::Even(1) => index as usize,
            Self::Even(_) if rows.len() == 1 => 0,
            Self::Even(count) => (index / count) as usize,
            Self::Sampled { shift, table } => {
                let sample = (index >> shift) as usize;
                let low = table[sample] as usize;
                let high = table.get(sample + 1).map_or(rows.len() - 1, |&row| row as usize);
                // The first row of the range that begins after the block, less one.
                low + rows[low..=high].partition_point(|row| row.first <= index) - 1
            }
        }
    }
}
