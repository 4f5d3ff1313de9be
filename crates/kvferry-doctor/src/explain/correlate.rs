//! From findings to one primary: consequences give way, and of causes the earliest that is certain wins.
//!
//! Nothing here depends on the order of the inputs or on repeats: findings compare by their rank among those of
//! their own input, never by line numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Basis, Confidence, Evidence, Explanation, Recovered, Verdict};
use crate::catalogue::{Catalogue, Entry};
use crate::log::{Finding, Level, Place, Scan, Scanner, Seen, Tier};
use crate::record::Severity;
use crate::side::{Cause, Role};

/// More lists of causes help nobody.
const MOST_OTHERS: usize = 8;

/// A finding with its kind.
struct Decided<'a> {
    finding: Finding,
    entry: &'a Entry,
    kind: Option<String>,
    basis: Basis,
    /// What remains possible, if the kind is not decided.
    candidates: Vec<Cause>,
}

pub(super) fn correlate(
    catalogue: &Catalogue,
    scanner: &Scanner,
    mut scan: Scan,
    names: &[String],
) -> Explanation {
    let (lines, bytes) = (scan.lines, scan.bytes);
    let (over, mut findings) = split_recovered(scanner, &mut scan);
    if findings.is_empty() {
        findings.extend(fuzzy(scanner, &scan));
    }
    let recovered = over.into_iter().map(|(finding, place)| Recovered {
        verdict: verdict(&decide(catalogue, &scan, finding), names, false),
        by: evidence(&place, names),
    });
    let mut recovered: Vec<_> = recovered.collect();
    recovered.sort_by(|a, b| (&a.verdict.id, &a.verdict.kind).cmp(&(&b.verdict.id, &b.verdict.kind)));
    let mut decided: Vec<_> = findings.into_iter().map(|finding| decide(catalogue, &scan, finding)).collect();
    merge_undecided(&mut decided);
    decided.sort_by(|a, b| rank(a).cmp(&rank(b)));

    let consequences: BTreeSet<String> =
        decided.iter().flat_map(|one| one.entry.side.peer.iter().cloned()).collect();
    let is_primary = |one: &Decided<'_>| {
        one.entry.side.role == Role::Primary && !consequences.contains(one.entry.record.id.as_str())
    };
    let (mut primaries, mut secondaries): (Vec<_>, Vec<_>) = decided.into_iter().partition(is_primary);
    let only_consequences = primaries.is_empty();
    if only_consequences && !secondaries.is_empty() {
        primaries.push(secondaries.remove(0));
    }
    explained_by_another(&mut primaries);
    let (mut others, mut same_lines) = (Vec::new(), Vec::new());
    let mut rest = primaries.into_iter();
    let primary = rest.next().map(|first| {
        others.extend(candidates(&first, names, only_consequences));
        let rivals = rivals(catalogue, &first, names, Role::Primary);
        same_lines = self::rivals(catalogue, &first, names, Role::Secondary);
        let verdict = verdict(&first, names, only_consequences);
        others.extend(rest.map(|one| verdict_of_other(&one, names)));
        // A rival of a kind that is listed already says nothing new.
        let listed = |kind: &Option<String>| {
            *kind == first.kind || first.candidates.iter().any(|cause| Some(&cause.kind) == kind.as_ref())
        };
        others.extend(rivals.into_iter().filter(|rival| !listed(&rival.kind)));
        verdict
    });
    distinct(&mut others, primary.as_ref());
    let mut secondary: Vec<_> = secondaries.iter().map(|one| verdict_of_other(one, names)).collect();
    secondary.extend(same_lines);
    Explanation { primary, others, secondary, recovered, lines, bytes }
}

/// Parts findings that were over by the end of the logs, with the line that shows it, from those that weren't.
fn split_recovered(scanner: &Scanner, scan: &mut Scan) -> (Vec<(Finding, Place)>, Vec<Finding>) {
    let (mut over, mut lasting) = (Vec::new(), Vec::new());
    for finding in std::mem::take(&mut scan.findings) {
        match recovery(scanner, scan, &finding) {
            Some(place) => over.push((finding, place.clone())),
            None => lasting.push(finding),
        }
    }
    (over, lasting)
}

/// The line that shows that a finding was over: in each input where it is, it was followed by success, and it was not
/// there again after that.
fn recovery<'s>(scanner: &Scanner, scan: &'s Scan, finding: &Finding) -> Option<&'s Place> {
    let shows: Vec<&Seen> = scanner
        .evidence(finding.entry, finding.alike)
        .iter()
        .flat_map(|evidence| {
            scan.seen.iter().filter(move |((of, _), _)| of == evidence).map(|(_, seen)| seen)
        })
        .collect();
    let over = finding.spans.iter().map(|span| {
        let after = shows.iter().filter(|seen| seen.ends(span)).map(|seen| &seen.place);
        // Its own log says it best; whichever it is, the order of the inputs decides nothing.
        after.min_by_key(|place| (place.file != span.file, &place.text, place.line))
    });
    let over: Option<Vec<_>> = over.collect();
    over?.into_iter().min_by_key(|place| (&place.text, place.line))
}

fn decide<'a>(catalogue: &'a Catalogue, scan: &Scan, finding: Finding) -> Decided<'a> {
    let entry = &catalogue.entries()[finding.entry];
    let side = &entry.side;
    let holds = |number: usize| finding.holds & (1 << number) != 0;
    let condition = side.discriminators.iter().enumerate().take(32).find(|(number, condition)| {
        holds(*number) && (condition.near.is_none() || scan.near.contains(&(finding.entry, *number)))
    });
    let alike = finding.alike.and_then(|number| side.alike.get(number));
    let left = match (alike, condition) {
        (Some(alike), _) => alike.or.as_slice(),
        (None, Some((_, condition))) => condition.or.as_slice(),
        (None, None) => &[],
    };
    let (kind, basis) = match (condition, &side.kind, finding.tier) {
        (_, kind, Tier::Fuzzy) => (kind.clone(), Basis::Fuzzy),
        _ if alike.is_some() => (alike.and_then(|alike| alike.kind.clone()), Basis::Alike),
        (Some((_, condition)), _, _) => (Some(condition.kind.clone()), Basis::Discriminated),
        (None, Some(kind), Tier::Code) => (Some(kind.clone()), Basis::Code),
        (None, Some(kind), Tier::Alike) => (Some(kind.clone()), Basis::Alike),
        (None, Some(kind), _) => (Some(kind.clone()), Basis::Message),
        (None, None, _) => (None, Basis::Undecided),
    };
    let is_of_record = basis == Basis::Message || basis == Basis::Alike && alike.is_none();
    let (kind, candidates) = match kind {
        // The record itself knows of several.
        Some(kind) if left.is_empty() && is_of_record && side.causes.len() > 1 => {
            (Some(kind), side.causes.clone())
        }
        Some(kind) if left.is_empty() => (Some(kind), Vec::new()),
        Some(kind) => {
            let possible = std::iter::once(&kind).chain(left);
            let candidates = possible.map(|kind| cause(entry, kind)).collect();
            (Some(kind), candidates)
        }
        None => (side.causes.first().map(|cause| cause.kind.clone()), side.causes.clone()),
    };
    Decided { finding, entry, kind, basis, candidates }
}

/// A candidate, with what the entry says to look at for it.
fn cause(entry: &Entry, kind: &str) -> Cause {
    let known = entry.side.causes.iter().find(|cause| cause.kind == kind);
    known.cloned().unwrap_or_else(|| Cause { kind: kind.to_owned(), look: String::new() })
}

/// The entry most like any unknown line.
fn fuzzy(scanner: &Scanner, scan: &Scan) -> Option<Finding> {
    let scored = scan.unknown.iter().filter_map(|place| {
        let (entry, score) = scanner.fuzzy.nearest(place.text.as_bytes())?;
        Some((score, entry, place))
    });
    let best = scored.max_by(|a, b| {
        a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)).then_with(|| b.2.text.cmp(&a.2.text))
    })?;
    Some(Finding {
        entry: best.1,
        tier: Tier::Fuzzy,
        weight: 0,
        level: None,
        alike: None,
        holds: 0,
        count: 1,
        places: vec![best.2.clone()],
        ordinal: 0,
        rivals: BTreeSet::new(),
        spans: Vec::new(),
    })
}

/// Where one of an entry's lines tells the cause, those that don't are repeats of it.
fn merge_undecided(decided: &mut Vec<Decided<'_>>) {
    let mut certain: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for one in decided.iter().filter(|one| one.basis == Basis::Discriminated) {
        certain.entry(one.finding.entry).or_insert((one.finding.ordinal, 0));
    }
    decided.retain(|one| {
        let Some((ordinal, count)) = certain.get_mut(&one.finding.entry) else { return true };
        if one.basis == Basis::Discriminated {
            return true;
        }
        *ordinal = (*ordinal).min(one.finding.ordinal);
        *count += one.finding.count;
        false
    });
    for one in decided {
        if let Some((ordinal, count)) = certain.remove(&one.finding.entry) {
            one.finding.ordinal = one.finding.ordinal.min(ordinal);
            one.finding.count += count;
        }
    }
}

/// Best first.
fn rank(one: &Decided<'_>) -> impl Ord {
    let severity = match one.entry.record.severity {
        Severity::Critical | Severity::Error => Level::Error,
        Severity::Warning => Level::Warning,
        Severity::Info => Level::Info,
    };
    let level = one.finding.level.unwrap_or(severity);
    let is_mild = level > Level::Error;
    let is_undecided = matches!(one.basis, Basis::Undecided | Basis::Fuzzy);
    (
        one.entry.side.role,
        is_mild,
        one.finding.tier == Tier::Alike,
        is_undecided,
        one.finding.ordinal,
        level,
        Reverse(one.finding.weight),
        one.entry.record.id.clone(),
        one.kind.clone(),
    )
}

/// If the first can't decide between causes and another finding is one of these causes, that comes first.
fn explained_by_another(primaries: &mut [Decided<'_>]) {
    let Some(first) = primaries.first().filter(|first| first.basis == Basis::Undecided) else { return };
    let is_candidate = |one: &Decided<'_>| {
        !matches!(one.basis, Basis::Undecided | Basis::Fuzzy)
            && first.candidates.iter().any(|cause| Some(&cause.kind) == one.kind.as_ref())
    };
    if let Some(at) = primaries.iter().position(is_candidate) {
        primaries[..=at].rotate_right(1);
    }
}

fn verdict(one: &Decided<'_>, names: &[String], only_consequences: bool) -> Verdict {
    let confidence = match one.basis {
        Basis::Fuzzy => Confidence::Low,
        _ if only_consequences => Confidence::Low,
        _ if !one.candidates.is_empty() => Confidence::Medium,
        // Other words are never as sure as a record's own, also where the record or a condition tells the kind.
        _ if one.finding.tier == Tier::Alike => Confidence::Medium,
        Basis::Undecided | Basis::Alike => Confidence::Medium,
        Basis::Code | Basis::Message | Basis::Discriminated => Confidence::High,
    };
    let evidence = one.finding.places.iter().map(|place| evidence(place, names));
    Verdict {
        id: one.entry.record.id.clone(),
        slug: one.entry.record.slug.clone(),
        kind: one.kind.clone(),
        confidence,
        evidence: evidence.collect(),
        basis: one.basis,
        count: one.finding.count,
        candidates: one.candidates.clone(),
    }
}

fn evidence(place: &Place, names: &[String]) -> Evidence {
    Evidence {
        file: names.get(place.file).cloned().unwrap_or_default(),
        line: place.line,
        text: place.text.clone(),
    }
}

fn verdict_of_other(one: &Decided<'_>, names: &[String]) -> Verdict {
    verdict(one, names, false)
}

/// The kinds that an undecided primary might be as well, each as a verdict of its own.
fn candidates(one: &Decided<'_>, names: &[String], only_consequences: bool) -> Vec<Verdict> {
    let rest = one.candidates.iter().skip(1);
    rest.map(|cause| Verdict {
        kind: Some(cause.kind.clone()),
        confidence: Confidence::Low,
        candidates: Vec::new(),
        ..verdict(one, names, only_consequences)
    })
    .collect()
}

/// Other records of a role that fit the primary's lines.
fn rivals(catalogue: &Catalogue, one: &Decided<'_>, names: &[String], role: Role) -> Vec<Verdict> {
    let entries = one.finding.rivals.iter().map(|rival| &catalogue.entries()[*rival]);
    entries
        .filter(|entry| entry.side.role == role)
        .map(|entry| Verdict {
            id: entry.record.id.clone(),
            slug: entry.record.slug.clone(),
            kind: entry.side.kind.clone().or_else(|| Some(entry.side.causes.first()?.kind.clone())),
            confidence: Confidence::Low,
            candidates: Vec::new(),
            ..verdict(one, names, false)
        })
        .collect()
}

/// Each record with each kind once, and not the primary's.
fn distinct(others: &mut Vec<Verdict>, primary: Option<&Verdict>) {
    let key = |verdict: &Verdict| (verdict.id.clone(), verdict.kind.clone());
    let mut seen: BTreeSet<_> = primary.iter().map(|primary| key(primary)).collect();
    others.retain(|verdict| seen.insert(key(verdict)));
    others.truncate(MOST_OTHERS);
}
