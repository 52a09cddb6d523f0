//! The table for the terminal.

use std::fmt::Write;

use super::digits;
use crate::figures::{Row, Side, Table};

/// Renders medians with least and most, and the ratio to the kernel's median.
pub(crate) fn table(table: &Table) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n{}", table.title);
    let sides: Vec<Side> = Side::ALL
        .into_iter()
        .filter(|side| table.rows.iter().any(|row| row.values.contains_key(side)))
        .collect();
    let whats: Vec<String> = table.rows.iter().map(subject_of).collect();
    let width = whats.iter().map(String::len).max().unwrap_or_default();
    let _ = write!(out, "  {:<width$}", "");
    for side in &sides {
        let _ = write!(out, " {:>26}", side.name());
        if *side != Side::Kernel {
            let _ = write!(out, " {:>7}", "ratio");
        }
    }
    out.push('\n');
    for (row, what) in table.rows.iter().zip(&whats) {
        let _ = write!(out, "  {what:<width$}");
        for &side in &sides {
            let cell = row.summary(side).map_or(String::new(), |summary| {
                let spread = match row.values[&side].len() {
                    1 => String::new(),
                    _ => format!(" ({}-{})", digits(summary.least), digits(summary.most)),
                };
                format!("{}{spread}", digits(summary.median))
            });
            let _ = write!(out, " {cell:>26}");
            if side != Side::Kernel {
                let ratio = row
                    .ratio(side)
                    .map_or(String::new(), |ratio| format!("{ratio:.2}"));
                let _ = write!(out, " {ratio:>7}");
            }
        }
        out.push('\n');
    }
    for (side, why) in &table.absent {
        let _ = writeln!(out, "  {}: {why}", side.name());
    }
    for (what, why) in &table.skipped {
        let _ = writeln!(out, "  SKIPPED: {what}: {}", why.trim_end());
    }
    out
}

/// Returns the label of a row, with its unit.
fn subject_of(row: &Row) -> String {
    match row.unit.name() {
        "" => row.what.clone(),
        unit => format!("{}, {unit}", row.what),
    }
}
