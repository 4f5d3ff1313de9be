use super::*;

#[test]
fn full_pools_have_full_patterns() {
    let texts: Vec<_> = Pattern::ALL
        .iter()
        .flat_map(|pattern| {
            pattern.shapes(FULL_POOL).into_iter().map(move |shape| format!("{pattern} {shape}"))
        })
        .collect();
    let expected = [
        "a 1 x 256 MiB",
        "b 4,096 x 64 KiB",
        "c 16,384 x 4 KiB",
        "d 65,536 x 1 KiB",
        "r 16,384 x 4 KiB",
        "e 1 x 4 KiB",
        "p 1,000 x 1 KiB",
        "p 10,000 x 1 KiB",
        "p 100,000 x 1 KiB",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn any_pool_holds_its_patterns_with_a_gap_after_each_run() {
    for pool in [4 << 20, (4 << 20) + 4096, 48 << 20, FULL_POOL - 4096, FULL_POOL, 3 * FULL_POOL] {
        for pattern in Pattern::ALL {
            for shape in pattern.shapes(pool) {
                assert!(
                    shape.count >= shape.run && shape.count.is_multiple_of(shape.run),
                    "{pattern} {shape:?}"
                );
                assert!(shape.len >= 8 && shape.len.is_multiple_of(8), "{pattern} {shape:?}");
                let slots = pool / (shape.len * shape.run);
                assert!(slots.div_ceil(2) >= shape.count / shape.run, "{pattern} {shape:?} in {pool}");
            }
        }
    }
}

#[test]
fn letters_lead_back_to_their_patterns() {
    for pattern in Pattern::ALL {
        assert_eq!(pattern.name().parse(), Ok(pattern));
    }
    assert!("A".parse::<Pattern>().expect_err("none").to_string().contains("a, b, c, d, r, e, g, p"));
}
