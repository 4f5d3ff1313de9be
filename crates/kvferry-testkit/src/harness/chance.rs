//! Numbers that look random and come again with their seed.

/// A small generator (splitmix64): good enough to shuffle blocks and choose moments.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins a sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Begins a sequence whose seed is `KVFERRY_TEST_SEED`, or taken from the clock; prints it, so that a run can be
    /// repeated.
    pub fn seeded() -> Self {
        let given = std::env::var("KVFERRY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(super::now_ns);
        println!("KVFERRY_TEST_SEED={seed}");
        Self::new(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// The numbers below `count` in random order.
    pub fn shuffled(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..count).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.below(i as u64 + 1) as usize);
        }
        numbers
    }

    /// Each number below `count` with itself, in random order.
    pub fn same_pairs(&mut self, count: u32) -> Vec<(u32, u32)> {
        self.shuffled(count).into_iter().map(|n| (n, n)).collect()
    }

    /// Each number below `count` with another at random.
    pub fn pairs(&mut self, count: u32) -> Vec<(u32, u32)> {
        self.shuffled(count).into_iter().zip(self.shuffled(count)).collect()
    }
}
