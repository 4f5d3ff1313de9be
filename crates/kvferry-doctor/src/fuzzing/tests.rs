use proptest::prelude::*;

use crate::catalogue::Catalogue;
use crate::explain::{Explainer, Explanation};

/// Lines of real forms, whole and broken.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let examples: Vec<String> =
        Catalogue::built_in().entries().iter().flat_map(|entry| entry.side.examples.clone()).collect();
    let line =
        (prop::sample::select(examples), any::<prop::sample::Index>(), 0..4u8).prop_map(|(line, at, how)| {
            let mut bytes = line.into_bytes();
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match how {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, 0xff),
                2 => {
                    bytes.splice(at..at, *b"\x1b[31m");
                }
                _ => {}
            }
            bytes
        });
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join(&b"\n"[..]))
}

fn key(explanation: &Explanation) -> Option<(String, Option<String>)> {
    explanation.primary.as_ref().map(|primary| (primary.id.clone(), primary.kind.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes_are_explained(data in prop::collection::vec(any::<u8>(), 0..4096)) {
        super::explain(&data);
    }

    #[test]
    fn broken_logs_are_explained(data in lines()) {
        super::explain(&data);
    }

    #[test]
    fn any_text_is_read_as_a_data_set(text in r#"[\{\}\[\]",:a-zA-Z0-9\n ]{0,300}"#) {
        super::dataset(text.as_bytes());
    }

    #[test]
    fn changed_records_are_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut seed = include_bytes!("../../tests/data/seed.json").to_vec();
        let at = at.index(seed.len());
        seed[at] = byte;
        super::dataset(&seed);
    }

    #[test]
    fn the_order_of_inputs_changes_no_primary(a in lines(), b in lines(), c in lines()) {
        let explain = |inputs: [&[u8]; 3]| {
            let named = inputs.into_iter().map(|input| (String::new(), std::io::Cursor::new(input.to_vec())));
            Explainer::built_in().inputs(named).expect("memory")
        };
        let expected = key(&explain([&a, &b, &c]));
        prop_assert_eq!(&key(&explain([&c, &a, &b])), &expected);
        prop_assert_eq!(&key(&explain([&b, &a, &c])), &expected);
    }

    #[test]
    fn repeated_lines_change_no_primary(log in lines()) {
        let mut twice = Vec::new();
        for line in log.split(|byte| *byte == b'\n') {
            for _ in 0..2 {
                twice.extend_from_slice(line);
                twice.push(b'\n');
            }
        }
        prop_assert_eq!(key(&Explainer::built_in().bytes(&twice)), key(&Explainer::built_in().bytes(&log)));
    }
}

#[test]
fn hostile_lines_take_bounded_time() {
    let began = std::time::Instant::now();
    for unit in [
        "ibv_reg_mr(",
        "Traceback (most recent call last):\n",
        "NIXL ",
        "[",
        "register ",
        "\x1b[",
        "E0821 ",
        "failed to ",
    ] {
        super::explain(unit.repeat((1 << 20) / unit.len()).as_bytes());
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
