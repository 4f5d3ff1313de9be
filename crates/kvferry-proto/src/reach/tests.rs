use super::*;

fn round_trip(reach: &Reach) -> Reach {
    postcard::from_bytes(&postcard::to_stdvec(reach).unwrap()).unwrap()
}

#[test]
fn known_and_unknown_ways_survive_the_wire() {
    for reach in [
        Reach::Cma { stable: false },
        Reach::Cma { stable: true },
        Reach::Map { memfd: 0, offset: 0 },
        Reach::Map { memfd: u64::MAX, offset: 1 << 40 },
        Reach::Other { mechanism: 99, key: Box::from(*b"key of a later version") },
    ] {
        assert_eq!(round_trip(&reach), reach);
    }
    let cma = postcard::to_stdvec(&Reach::Cma { stable: true }).unwrap();
    assert_eq!(cma, [1, 1, 1]);
}

#[test]
fn keys_in_a_form_not_known_are_kept_unread() {
    for (mechanism, key) in [
        (CMA, &[][..]),
        (CMA, &[2]),
        (CMA, &[1, 1]),
        (MAP, &[]),
        (MAP, &[5]),
        (MAP, &[5, 5, 5]),
        (MAP, &[0xff; 11]),
    ] {
        let reach = Reach::from_wire(mechanism, key);
        let other = Reach::Other { mechanism, key: key.into() };
        assert_eq!(reach, other);
        assert_eq!(round_trip(&reach), other);
    }
}
