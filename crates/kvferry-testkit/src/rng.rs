//! Random numbers that a seed repeats.

/// SplitMix64: small, quick, and good enough to scatter blocks and choose moments.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of a remainder is far below what a test could see.
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// Puts the items into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// `count` different numbers below `bound`, in random order.
    ///
    /// # Panics
    /// There are not so many.
    pub fn distinct(&mut self, count: usize, bound: u64) -> Vec<u64> {
        assert!(count as u64 <= bound, "{count} different numbers below {bound}");
        let mut all: Vec<u64> = (0..bound).collect();
        self.shuffle(&mut all);
        all.truncate(count);
        all
    }
}
