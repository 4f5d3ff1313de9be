use super::*;

fn track(tokens: &[u32], pages: &[&str]) -> Track {
    let pages: Vec<String> = pages.iter().copied().map(String::from).collect();
    Track {
        tokens: tokens.to_vec(),
        logits: Some(LogitsHash::EMPTY),
        finite: true,
        computed: pages.clone(),
        received: pages,
    }
}

#[test]
fn equal_runs_are_equal() {
    let run = [track(&[1, 2], &["a", "b", "c", "d"])];
    assert_eq!(compare(&run, &run, 2, 16), (Verdict::EQUAL, Vec::new()));
}

#[test]
fn a_page_that_changed_on_the_way_is_named() {
    let alone = [track(&[1], &["k0", "k1", "v0", "v1", "K0", "K1", "V0", "V1"])];
    let mut split = alone.clone();
    split[0].received[7] = "?".into();
    let (verdict, sentences) = compare(&split, &alone, 4, 16);
    assert_eq!(verdict, Verdict { pages: false, ..Verdict::EQUAL });
    assert_eq!(
        sentences,
        [
            "request 0: layer 1 V, page 1 of 2 (tokens 16 to 31): its bytes at decode differ from those at prefill"
        ]
    );
}

#[test]
fn a_page_that_was_computed_otherwise_is_found_too() {
    let alone = [track(&[1], &["a", "b"])];
    let mut split = alone.clone();
    split[0].received[0] = "?".into();
    split[0].computed[0] = "?".into();
    let (verdict, sentences) = compare(&split, &alone, 2, 16);
    assert!(!verdict.pages && sentences.len() == 1, "{sentences:?}");
}

#[test]
fn many_differing_pages_are_counted() {
    let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let alone = [track(&[1], &names)];
    let mut split = alone.clone();
    split[0].received = vec!["?".into(); 20];
    let (_, sentences) = compare(&split, &alone, 2, 16);
    assert_eq!(sentences.len(), NAMED + 1);
    assert_eq!(sentences[NAMED], "request 0: 15 more pages at decode differ from those at prefill");
}

#[test]
fn missing_pages_are_not_taken_for_equal() {
    let alone = [track(&[1], &[])];
    let (verdict, _) = compare(&alone, &alone, 2, 16);
    assert!(!verdict.pages);
}

#[test]
fn tokens_and_logits_are_compared() {
    let alone = [track(&[1, 2, 3], &["a"]), track(&[4], &["b"])];
    let mut split = alone.clone();
    split[0].tokens[1] = 9;
    split[1].tokens.push(5);
    split[1].finite = false;
    let (verdict, sentences) = compare(&split, &alone, 1, 16);
    assert_eq!(verdict, Verdict { tokens: false, logits: false, pages: true });
    assert_eq!(sentences[0], "request 0: token 1 of the answer is 9 split and 2 alone");
    assert_eq!(sentences[1], "request 1: the answer has 2 tokens split and 1 alone");
    assert!(sentences[2].contains("not all logits are finite numbers split"));

    let mut split = alone.clone();
    split[0].logits = None;
    let (verdict, _) = compare(&split, &alone, 1, 16);
    assert!(!verdict.logits && verdict.tokens);
}
