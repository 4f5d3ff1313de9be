use crate::pattern::Shape;

/// Where the blocks of a row lie in the pools of the two sides, each side in an order of its own.
///
/// Runs of blocks lie in every second slot, spread over the whole pool, so that nothing touches that is not meant to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    /// Offset of each block in the near pool, in the order of the transfer.
    pub(crate) near: Vec<u64>,
    /// Offset of each block in the far pool.
    pub(crate) far: Vec<u64>,
}

/// Bytes that lie together on both sides, as offsets into the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) near: u64,
    pub(crate) far: u64,
    pub(crate) len: u64,
}

impl Layout {
    /// Both processes come to the same from the same numbers.
    pub(crate) fn new(shape: Shape, pool: u64, seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let near = scatter(shape, pool, &mut random);
        let far = scatter(shape, pool, &mut random);
        Self { shape, near, far }
    }

    /// The blocks as pieces, neighbours on both sides merged.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (&near, &far) in self.near.iter().zip(&self.far) {
            let len = self.shape.len;
            match pieces.last_mut() {
                Some(last) if last.near + last.len == near && last.far + last.len == far => last.len += len,
                _ => pieces.push(Piece { near, far, len }),
            }
        }
        pieces
    }
}

/// Shares pieces out to `parts` in order, an equal number of bytes each, cutting where a share ends.
pub(crate) fn share_out(pieces: &[Piece], parts: usize) -> Vec<Vec<Piece>> {
    let total: u64 = pieces.iter().map(|piece| piece.len).sum();
    // Cuts inside a cache line would make two threads write to it.
    let share = (total.div_ceil(parts as u64)).next_multiple_of(64);
    let mut shares = vec![Vec::new(); parts];
    let mut taken = 0;
    for &piece in pieces {
        let mut rest = piece;
        while rest.len > 0 {
            let part = ((taken / share) as usize).min(parts - 1);
            let room = if part == parts - 1 { u64::MAX } else { share - taken % share };
            let (head, tail) = rest.cut(room);
            shares[part].push(head);
            taken += head.len;
            rest = tail;
        }
    }
    shares
}

impl Piece {
    /// At most `len` bytes of it, and what is left.
    pub(crate) fn cut(self, len: u64) -> (Self, Self) {
        let len = len.min(self.len);
        let tail = Self { near: self.near + len, far: self.far + len, len: self.len - len };
        (Self { len, ..self }, tail)
    }
}

/// Offsets of the blocks of a side: runs in random even slots.
fn scatter(shape: Shape, pool: u64, random: &mut SplitMix) -> Vec<u64> {
    let slot = shape.len * shape.run;
    let mut even: Vec<u64> = (0..pool / slot).step_by(2).collect();
    let runs = ((shape.count / shape.run) as usize).min(even.len());
    for i in 0..runs {
        let left = (even.len() - i) as u64;
        even.swap(i, i + random.below(left) as usize);
    }
    even[..runs].iter().flat_map(|&at| (0..shape.run).map(move |i| at * slot + i * shape.len)).collect()
}

/// A small generator: the order has to be the same in both processes, and no more than that.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
