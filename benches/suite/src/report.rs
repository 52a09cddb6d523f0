//! Results of a run: a table for the terminal, JSON, a chart for each workload, and the page.

pub(crate) mod chart;
pub(crate) mod page;
pub(crate) mod text;

use serde::Serialize;

use crate::figures::Table;
use crate::machine::Machine;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) is_quick: bool,
    pub(crate) rounds: u32,
    /// Seconds that the run took.
    pub(crate) seconds: f64,
    pub(crate) tables: Vec<Table>,
}

/// Formats a value with three significant digits.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "-".into(),
        _ if size == 0.0 => "0".into(),
        _ if size >= 1000.0 => thousands(value),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: f64) -> String {
    let plain = format!("{value:.0}");
    let (sign, plain) = match plain.strip_prefix('-') {
        Some(rest) => ("-", rest.to_owned()),
        None => ("", plain),
    };
    let mut shown = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    format!("{sign}{shown}")
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn three_digits_matter() {
        let shown: Vec<_> = [0.0, 0.01234, 1.234, 12.34, 123.4, 1234.5, 1234567.0]
            .into_iter()
            .map(digits)
            .collect();
        let wanted = ["0", "0.012", "1.23", "12.3", "123", "1,234", "1,234,567"];
        assert_eq!(shown, wanted);
    }
}
