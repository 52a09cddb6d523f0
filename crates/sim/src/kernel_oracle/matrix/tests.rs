//! Coverage of the representative cases.

use super::*;

fn covered(cases: &[Case]) -> BTreeSet<Level> {
    cases.iter().flat_map(values).collect()
}

#[test]
fn representative_cases_have_every_value_of_every_dimension() {
    assert_eq!(covered(&representative()), covered(&full()));
}

#[test]
fn representative_cases_differ() {
    let cases = representative();
    assert_eq!(cases.len(), REPRESENTATIVES);
    assert_eq!(cases.iter().collect::<BTreeSet<_>>().len(), cases.len());
}

#[test]
fn varied_cases_end_when_every_pair_is_covered() {
    let all: BTreeSet<_> = full().iter().flat_map(pairs).collect();
    let some: BTreeSet<_> = varied(usize::MAX).iter().flat_map(pairs).collect();
    assert_eq!(all, some);
}

#[test]
fn full_has_each_case_once() {
    let cases = full();
    assert_eq!(cases.iter().collect::<BTreeSet<_>>().len(), cases.len());
    assert!(cases.iter().all(Case::is_possible));
}

#[test]
fn sample_begins_with_every_pair_and_ends_with_all() {
    let all = full();
    let pairs = varied(usize::MAX);
    let some = sample(&all, pairs.len() + 20, 1);
    assert_eq!(some[..pairs.len()], pairs);
    assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), pairs.len() + 20);
    assert_eq!(sample(&all, usize::MAX, 1).len(), all.len());
}
