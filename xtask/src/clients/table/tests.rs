use super::*;

fn row(client: &'static str, mode: &str, stock: Verdict, ours: Verdict) -> Row {
    let took = Duration::from_millis(31_400);
    Row { client, version: "1.0", mode: mode.to_owned(), stock, ours, took }
}

fn rows() -> Vec<Row> {
    vec![
        row("One", "plain", Verdict::Passed, Verdict::Passed),
        row("One", "tcp", Verdict::Unknown, Verdict::Failed("FAIL: a|b\nc".to_owned())),
        row("Two", "gpu", Verdict::NotRun("no GPU".to_owned()), Verdict::NotRun("no GPU".to_owned())),
    ]
}

const TABLE: &str = "\
| client | version | mode  | stock wheel     | kvferry         | time |
|--------|---------|-------|-----------------|-----------------|------|
| One    | 1.0     | plain | pass            | pass            | 31 s |
| One    | 1.0     | tcp   |                 | FAIL: a b c     | 31 s |
| Two    | 1.0     | gpu   | not run: no GPU | not run: no GPU |      |
";

#[test]
fn rows_become_a_table() {
    let rows = rows();
    assert_eq!(render(&rows), TABLE);
    assert_eq!(rows.iter().map(Row::failed).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(rows.iter().map(Row::passed).collect::<Vec<_>>(), [true, false, false]);
    let long = render(&[row("One", "plain", Verdict::Passed, Verdict::Failed("é".repeat(200)))]);
    assert!(long.contains(&format!(" FAIL: {}… ", "é".repeat(MOST_CHARS))), "{long}");
}

#[test]
fn rows_take_their_places_in_a_page() {
    let page = format!("# Page\n\n{TABLE}\nMore.\n");
    assert_eq!(put(&page, &[], &[]).expect("page"), page);

    let new = [
        row("One", "tcp", Verdict::Passed, Verdict::Passed),
        row("One", "kill", Verdict::Unknown, Verdict::Passed),
        row("Three", "plain", Verdict::Unknown, Verdict::Passed),
    ];
    let modes = |page: &str| {
        let rows = page.lines().filter_map(cells).skip(2);
        rows.map(|cells| [&cells[0], "/", &cells[2], " ", &cells[4]].concat()).collect::<Vec<_>>()
    };
    let some = put(&page, &new, &[]).expect("page");
    assert_eq!(
        modes(&some),
        ["One/plain pass", "One/tcp pass", "One/kill pass", "Two/gpu not run: no GPU", "Three/plain pass"]
    );
    let stock = |page: &str| page.lines().filter_map(cells).nth(2).map(|cells| cells[3].clone());
    let ours = [row("One", "plain", Verdict::Unknown, Verdict::Failed("FAIL".to_owned()))];
    let again = put(&page, &ours, &[]).expect("page");
    assert_eq!((modes(&again)[0].as_str(), stock(&again).as_deref()), ("One/plain FAIL", Some("pass")));
    assert!(some.starts_with("# Page\n\n| client") && some.ends_with("|\n\nMore.\n"), "{some}");

    // All modes of One were run: what it no longer has goes, and what is left stands as it was run.
    let [tcp, kill, three] = new;
    let all = put(&page, &[kill, tcp, three], &[["One", "1.0"]]).expect("page");
    assert_eq!(modes(&all), ["One/kill pass", "One/tcp pass", "Two/gpu not run: no GPU", "Three/plain pass"]);

    let error = put("# Page\n", &ours, &[]).expect_err("no table").to_string();
    assert!(error.contains("client, version, mode, stock wheel, kvferry, time"), "{error}");
}
