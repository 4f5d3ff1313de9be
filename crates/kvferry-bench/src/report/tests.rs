use super::*;
use crate::row::Limit;
use crate::row::tests::rate;

#[test]
fn the_table_lines_up_and_says_what_is_wrong() {
    let time = Row {
        pattern: Pattern::P,
        blocks: Some(100_000),
        op: RowOp::Read,
        measure: Measure::Time { p50_us: 1234.5, p99_us: 2345.6 },
        limit: Limit::Copy,
        limit_median: 30_000.0,
        ratio: 0.041,
        verified: false,
        ..rate()
    };
    let report = Report { rows: vec![rate(), time], ..Report::default() };
    let expected = "\
row       op     path       mechanism  memory     kvferry                 raw loop         ratio  CPU s/GB
c         write  same_host  cma        private  2.72 GB/s  2.00 to 3.14  3.00 GB/s  cma     0.91      0.33
p 100000  read   same_host  cma        private    1234 us  p99 2346       30000 us  copy  0.0410      0.33  WRONG BYTES
";
    assert_eq!(report.table(), expected, "\n{}", report.table());
    assert!(!report.is_good());
}

#[test]
fn a_report_is_good_if_nothing_is_missing_or_wrong() {
    let mut report = Report { rows: vec![rate()], ..Report::default() };
    assert!(report.is_good());
    report.missing.push(Missing {
        pattern: Pattern::P,
        blocks: Some(1000),
        op: RowOp::Write,
        path: BenchPath::Tcp,
        memory: Memory::Kvferry,
        cause: "no way".to_owned(),
    });
    assert!(!report.is_good());
    assert_eq!(report.missing[0].to_string(), "missing: tcp kvferry p of 1000 blocks write: no way");
}
