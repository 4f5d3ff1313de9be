use super::*;

fn timeline(spans: &[(u64, u64)]) -> Timeline {
    let mut timeline = Timeline::default();
    for (from, to) in spans {
        timeline.push(Stamp::at_ms(*from), Stamp::at_ms(*to));
    }
    timeline
}

#[test]
fn overlapping_spans_count_once() {
    let spans = timeline(&[(10, 20), (15, 30), (50, 51), (40, 40), (60, 55)]);
    assert_eq!(spans.busy(), Duration::from_millis(21));
}

#[test]
fn overlap_is_what_both_share() {
    let transfers = timeline(&[(5, 15), (12, 18), (30, 40)]);
    let compute = timeline(&[(0, 10), (10, 14), (35, 36), (38, 100)]);
    assert_eq!(transfers.overlap(&compute), Duration::from_millis(9 + 1 + 2));
    assert_eq!(compute.overlap(&transfers), Duration::from_millis(12));
    assert_eq!(transfers.overlap(&Timeline::default()), Duration::ZERO);
}
