use std::sync::Arc;

use super::*;
use crate::settings::PathSet;

fn denied() -> Result<(), Denial> {
    Err(Denial { cause: "Yama forbids it".into(), remedy: "ask Yama".into() })
}

fn router(ours: Result<(), Denial>, theirs: Result<(), Denial>, change: impl Fn(&mut Settings)) -> Router {
    let mut settings = Settings::default();
    change(&mut settings);
    Router { path: Path::SameHost, ours, theirs, settings: Arc::new(settings) }
}

fn paths(text: &str) -> PathSet {
    text.parse().unwrap()
}

#[test]
fn shared_memory_is_mapped_by_whoever_lacks_it() {
    let router = router(Ok(()), Ok(()), |_| ());
    for local in Class::ALL {
        assert_eq!(router.choose(local, Class::Shared, 1), Ok(Way::Map));
    }
    assert_eq!(router.choose(Class::Shared, Class::Private, 1 << 30), Ok(Way::MapByTarget));
    assert_eq!(router.choose(Class::Private, Class::Private, 1 << 30), Ok(Way::Cma));
}

#[test]
fn a_small_copy_is_not_worth_the_trip_to_the_target() {
    let router = router(Ok(()), Ok(()), |_| ());
    assert_eq!(router.choose(Class::Shared, Class::Private, WORTH_A_TRIP - 1), Ok(Way::Cma));
    let router = self::router(denied(), denied(), |_| ());
    assert_eq!(router.choose(Class::Shared, Class::Private, 1), Ok(Way::MapByTarget));
}

#[test]
fn memory_that_may_vanish_is_never_loaded_from() {
    let router = router(Ok(()), Ok(()), |_| ());
    assert_eq!(router.choose(Class::Shared, Class::Fragile, 1 << 30), Ok(Way::Cma));
}

#[test]
fn who_may_reach_the_other_copies() {
    let router = router(denied(), Ok(()), |_| ());
    assert_eq!(router.choose(Class::Private, Class::Private, 1), Ok(Way::CmaByTarget));
    let router = self::router(denied(), denied(), |_| ());
    let why_not = router.choose(Class::Private, Class::Private, 1).unwrap_err();
    assert!(why_not.iter().any(|w| w.way == "cma" && w.reason == "Yama forbids it; ask Yama"), "{why_not:?}");
    assert!(why_not.iter().any(|w| w.way == "map"), "{why_not:?}");
    assert_eq!(router.check(), Ok(()), "kvferry memory still has a way");
}

#[test]
fn settings_bar_ways_and_say_so() {
    let router = router(Ok(()), Ok(()), |s| s.forbid = paths("map"));
    assert_eq!(router.choose(Class::Private, Class::Shared, 1), Ok(Way::Cma));
    let router = self::router(denied(), denied(), |s| s.require = paths("cma"));
    let why_not = router.check().unwrap_err();
    assert!(
        why_not.iter().any(|w| w.way == "map" && w.reason.contains("KVFERRY_REQUIRE=cma")),
        "{why_not:?}"
    );
    assert!(why_not.iter().any(|w| w.way == "cma" && w.reason.contains("Yama")), "{why_not:?}");
    let router = self::router(Ok(()), Ok(()), |s| s.require = paths("tcp"));
    assert!(router.check().is_err());
}

#[test]
fn the_report_names_each_pair_in_use_once() {
    let router = router(denied(), denied(), |_| ());
    let local = [Class::Private, Class::Shared, Class::Private];
    let report = router.report(local.into_iter(), [Class::Private].into_iter());
    assert_eq!(report.len(), 2);
    assert_eq!(
        (report[0].local, report[0].remote, report[0].route),
        ("private memory", "private memory", None)
    );
    assert!(report[0].to_string().contains("not cma: Yama forbids it; ask Yama"), "{}", report[0]);
    assert_eq!(report[1].route.map(|r| r.to_string()).as_deref(), Some("same_host map by the target"));
}

#[test]
fn the_report_says_why_the_target_copies() {
    let report =
        router(denied(), Ok(()), |_| ()).report([Class::Private].into_iter(), [Class::Private].into_iter());
    assert!(report[0].to_string().contains("not cma by the initiator: Yama forbids it"), "{}", report[0]);
}
