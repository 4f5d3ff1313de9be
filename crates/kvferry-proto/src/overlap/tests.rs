use proptest::prelude::*;

use super::*;

fn run(addr: u64, len: u64, stride: u64, count: u64, position: u64) -> Run {
    Run { device: 0, addr, len, stride, count, position }
}

// Every pair of blocks, compared.
fn naive(runs: &[Run]) -> Vec<(u64, u64)> {
    let blocks: Vec<_> = runs
        .iter()
        .flat_map(|r| (0..r.count).map(move |n| (r.device, r.addr + n * r.stride, r.len, r.position + n)))
        .collect();
    let mut pairs = Vec::new();
    for (n, a) in blocks.iter().enumerate() {
        for b in &blocks[..n] {
            if a.0 == b.0 && a.1.max(b.1) < (a.1 + a.2).min(b.1 + b.2) {
                pairs.push((a.3.min(b.3), a.3.max(b.3)));
            }
        }
    }
    pairs
}

#[test]
fn halves_of_the_same_pages_lie_apart() {
    let pages = [run(0, 50, 100, 1000, 0), run(50, 50, 100, 1000, 1000)];
    assert!(interleaved(&pages));
    assert_eq!(first_overlap(pages.to_vec()), None);
    let shifted = [run(0, 50, 100, 1000, 0), run(49, 50, 100, 1000, 1000)];
    assert_eq!(first_overlap(shifted.to_vec()), Some((0, 1000)));
}

#[test]
fn parts_that_cross_the_stride_are_walked() {
    // The second run's part is [60, 110) of 100: legal, but not by its residues alone.
    let runs = [run(0, 10, 100, 5, 0), run(60, 45, 100, 1, 5)];
    assert!(!interleaved(&runs));
    assert_eq!(first_overlap(runs.to_vec()), Some((1, 5)));
    let runs = [run(0, 10, 100, 5, 0), run(60, 40, 100, 4, 5)];
    assert_eq!(first_overlap(runs.to_vec()), None);
}

#[test]
fn devices_have_their_own_addresses() {
    let mut runs = [run(0, 10, 10, 1, 0), run(5, 10, 10, 1, 1)];
    assert_eq!(first_overlap(runs.to_vec()), Some((0, 1)));
    runs[1].device = 1;
    assert_eq!(first_overlap(runs.to_vec()), None);
}

#[test]
fn addresses_to_the_very_end_are_no_trouble() {
    let top = u64::MAX - 100;
    let runs = vec![run(top, 10, 20, 5, 0), run(top + 10, 10, 20, 5, 5)];
    assert_eq!(first_overlap(runs), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn agrees_with_comparing_all_pairs(
        shapes in prop::collection::vec((0_u32..2, 0_u64..400, 1_u64..6, 0_u64..5, 1_u64..6), 0..7),
        even in any::<bool>(),
    ) {
        let mut position = 0;
        let runs: Vec<_> = shapes
            .into_iter()
            .map(|(device, addr, len, gap, count)| {
                let stride = if even { 12 } else { len + gap };
                let run = Run { device, ..run(addr, len, stride, count, position) };
                position += count;
                run
            })
            .collect();
        let pairs = naive(&runs);
        match first_overlap(runs) {
            Some(pair) => prop_assert!(pairs.contains(&pair)),
            None => prop_assert_eq!(pairs, vec![]),
        }
    }
}
