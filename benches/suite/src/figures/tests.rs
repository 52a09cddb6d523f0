//! Figures computed from rounds.

use super::*;

fn table(values: &[(Side, f64)]) -> Table {
    let mut table = Table::default();
    for &(side, value) in values {
        let mut round = Round::default();
        round.add("time", Unit::Seconds, value);
        table.add(side, round);
    }
    table
}

#[test]
fn the_median_of_an_even_number_lies_between() {
    let table = table(&[(Side::Kernel, 4.0), (Side::Kernel, 1.0)]);
    let summary = table.rows[0].summary(Side::Kernel).unwrap();
    assert_eq!(
        (summary.least, summary.median, summary.most),
        (1.0, 2.5, 4.0)
    );
}

#[test]
fn a_ratio_is_the_median_by_the_kernels() {
    let table = table(&[
        (Side::Kernel, 2.0),
        (Side::Mount, 1.0),
        (Side::Mount, 9.0),
        (Side::Mount, 3.0),
    ]);
    assert_eq!(table.rows[0].ratio(Side::Mount), Some(1.5));
    assert_eq!(table.rows[0].ratio(Side::Kernel), None);
    assert_eq!(table.rows[0].ratio(Side::Library), None);
}

#[test]
fn reports_say_why_a_part_was_skipped() {
    let mut table = Table::default();
    let mut round = Round::default();
    round.add("time", Unit::Seconds, 1.0);
    round.skip("a database", "it is not installed");
    table.add(Side::Kernel, round);
    let text = crate::report::text::table(&table);
    assert!(text.contains("SKIPPED: a database: it is not installed"));
}

#[test]
fn no_ratio_by_zero() {
    let table = table(&[(Side::Kernel, 0.0), (Side::Mount, 1.0)]);
    assert_eq!(table.rows[0].ratio(Side::Mount), None);
}
