use super::*;

fn told(payload: &str) -> [Received; 1] {
    [Received { from: "a".into(), payload: payload.into(), stamp: 9 }]
}

fn hear(ledger: &mut Ledger, payload: &str) -> Result<Vec<Bare>, String> {
    let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ledger.hear("a", &told(payload))));
    heard.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn what_came_as_it_should_is_fine() {
    let mut ledger = Ledger::default();
    let text = ledger.issue(3, 0);
    assert_eq!(ledger.reserve(2), 0);
    assert_eq!(hear(&mut ledger, "bare 0 5"), Ok(vec![(5, 9)]));
    assert_eq!(hear(&mut ledger, &text), Ok(vec![]));
    assert_eq!(hear(&mut ledger, "bare 1 6"), Ok(vec![(6, 9)]));
    ledger.settle(&text, Due::Must);
    ledger.check(3);
    assert_eq!(ledger.missing(3), 0);
}

#[test]
fn twice_out_of_order_and_from_nowhere_are_told_apart() {
    let mut ledger = Ledger::default();
    let text = ledger.issue(3, 0);
    ledger.reserve(3);
    assert!(hear(&mut ledger, &text).is_ok());
    assert!(hear(&mut ledger, &text).unwrap_err().contains("at most once"));
    // A gap is a notification that was lost with its link.
    assert!(hear(&mut ledger, "bare 1 5").is_ok());
    assert!(hear(&mut ledger, "bare 1 5").unwrap_err().contains("twice or out of order"));
    assert!(hear(&mut ledger, "bare 0 5").unwrap_err().contains("twice or out of order"));
    assert!(hear(&mut ledger, "bare 3 5").unwrap_err().contains("below 3"));
    assert!(hear(&mut ledger, "transfer 4.0").unwrap_err().contains("nobody issued"));
    let stranger = [Received { from: "b".into(), payload: text, stamp: 0 }];
    let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ledger.hear("a", &stranger)));
    assert!(heard.is_err());
}

#[test]
fn missing_and_forbidden_ones_are_found() {
    let mut ledger = Ledger::default();
    let (done, cancelled) = (ledger.issue(3, 0), ledger.issue(3, 1));
    ledger.settle(&done, Due::Must);
    assert_eq!(ledger.missing(3), 1);
    let check = |ledger: &Ledger| std::panic::catch_unwind(|| ledger.check(3)).is_err();
    assert!(check(&ledger));
    hear(&mut ledger, &done).unwrap();
    assert!(!check(&ledger));
    ledger.settle(&cancelled, Due::Never);
    assert!(!check(&ledger));
    assert!(hear(&mut ledger, &cancelled).is_err(), "also in a later round");
}
