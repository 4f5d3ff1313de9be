use std::fs;

use super::*;
use crate::pattern::Pattern;
use crate::row::Limit;
use crate::row::tests::rate;

fn report() -> Report {
    let time = |pattern, blocks, op, p50_us| Row {
        pattern,
        blocks,
        op,
        measure: Measure::Time { p50_us, p99_us: p50_us * 2.0 },
        limit: Limit::Call,
        limit_median: 0.7,
        ratio: p50_us / 0.7,
        ..rate()
    };
    let rows = vec![
        rate(),
        Row { op: RowOp::Read, ..rate() },
        time(Pattern::E, None, RowOp::Write, 1.2),
        time(Pattern::G, None, RowOp::Notify, 80.0),
        time(Pattern::P, Some(100_000), RowOp::Write, 2500.0),
        Row { path: "tcp".to_owned(), ratio: 0.777, ..rate() },
    ];
    Report { rows, ..Report::default() }
}

#[test]
fn both_formats_are_written() {
    let dir = tempfile::tempdir().expect("directory");
    let (svg, png) = (dir.path().join("bench.svg"), dir.path().join("bench.PNG"));
    plot(&report(), &svg).expect("svg");
    plot(&report(), &png).expect("png");
    let svg = fs::read_to_string(svg).expect("svg");
    // Text is written as text, a piece a line.
    for piece in
        ["same_host, private memory", "tcp, private memory", "p 100k", "0.78", "write", "notify", "GB/s"]
    {
        assert!(svg.contains(piece), "{piece} is not in {svg}");
    }
    let png = fs::read(png).expect("png");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{} bytes", png.len());
}

#[test]
fn other_names_and_empty_reports_are_refused() {
    for name in ["bench", "bench.jpg", "svg"] {
        let error = plot(&report(), Path::new(name)).expect_err("refused");
        assert!(error.to_string().contains(".svg or a .png"), "{error}");
    }
    assert!(plot(&Report::default(), Path::new("/nonexistent/bench.svg")).is_err());
    let error = plot(&report(), Path::new("/nonexistent/bench.svg")).expect_err("no directory");
    assert!(error.to_string().contains("/nonexistent/bench.svg"), "{error}");
}

#[test]
fn small_ratios_are_percents() {
    assert_eq!(["0.95", "12.3", "4.10%"], [0.95, 12.3, 0.041].map(quotient).each_ref().map(String::as_str));
}
