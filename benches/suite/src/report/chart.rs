//! A chart of a workload as SVG: the ratio of each side to the kernel, for each figure.
//!
//! Bars grow to the right of the kernel's line when a side is better and to the left when it is worse. The scale is
//! logarithmic. Colours follow the reader's light or dark scheme.

use std::fmt::Write;

use super::digits;
use crate::figures::{Row, Side, Table};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 270.0;
const VALUES: f64 = 190.0;
const BAR: f64 = 12.0;
const GAP: f64 = 10.0;
const TOP: f64 = 52.0;
/// Larger ratios are clamped.
const MOST: f64 = 32.0;

const STYLE: &str = "\
    text { font: 12px system-ui, sans-serif; fill: #24292f }\n\
    .title { font-weight: 600; font-size: 14px }\n\
    .faint { fill: #57606a }\n\
    .axis { stroke: #57606a; stroke-width: 1 }\n\
    .grid { stroke: #d0d7de; stroke-width: 1 }\n\
    .mount { fill: #0969da }\n\
    .library { fill: #8250df }\n\
    @media (prefers-color-scheme: dark) {\n\
      text { fill: #e6edf3 }\n\
      .faint { fill: #9198a1 }\n\
      .axis { stroke: #9198a1 }\n\
      .grid { stroke: #3d444d }\n\
      .mount { fill: #4493f8 }\n\
      .library { fill: #ab7df8 }\n\
    }\n";

const SIDES: [(Side, &str); 2] = [(Side::Mount, "mount"), (Side::Library, "library")];

/// Draws a table. Returns None if there is nothing to compare.
pub(crate) fn chart(table: &Table) -> Option<String> {
    let rows: Vec<&Row> = table
        .rows
        .iter()
        .filter(|row| {
            SIDES
                .iter()
                .any(|&(side, _)| times_better(row, side).is_some())
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let height = |row: &Row| {
        let bars = SIDES
            .iter()
            .filter(|&&(side, _)| times_better(row, side).is_some())
            .count();
        bars as f64 * (BAR + 2.0) + GAP
    };
    let all: f64 = rows.iter().map(|row| height(row)).sum();
    let plot = WIDTH - LABELS - VALUES;
    let middle = LABELS + plot / 2.0;
    let mut body = String::new();
    for times in [0.0625, 0.25, 1.0, 4.0, 16.0_f64] {
        let x = middle + offset(times, plot);
        let class = if times == 1.0 { "axis" } else { "grid" };
        let _ = writeln!(
            body,
            r#"<line class="{class}" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{:.1}"/>"#,
            TOP + all
        );
        let label = match times {
            1.0 => "kernel".to_owned(),
            _ if times < 1.0 => format!("1/{:.0}", 1.0 / times),
            _ => format!("{times:.0}x"),
        };
        let _ = writeln!(
            body,
            r#"<text class="faint" x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            TOP + all + 16.0
        );
    }
    let mut y = TOP + GAP / 2.0;
    for row in rows {
        let height = height(row);
        let _ = writeln!(
            body,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LABELS - 10.0,
            y + (height - GAP) / 2.0 + 4.0,
            escaped(&row.what)
        );
        for (side, class) in SIDES {
            let Some(times) = times_better(row, side) else {
                continue;
            };
            let end = middle + offset(times, plot);
            let _ = writeln!(
                body,
                r#"<rect class="{class}" x="{:.1}" y="{y:.1}" width="{:.1}" height="{BAR}" rx="2"/>"#,
                end.min(middle),
                (end - middle).abs().max(1.0)
            );
            let values = [Side::Kernel, side].map(|side| {
                row.summary(side)
                    .map_or(String::new(), |s| digits(s.median))
            });
            let _ = writeln!(
                body,
                r#"<text class="faint" x="{:.1}" y="{:.1}">{} : {} {}</text>"#,
                WIDTH - VALUES + 12.0,
                y + BAR - 2.0,
                values[1],
                values[0],
                row.unit.name()
            );
            y += BAR + 2.0;
        }
        y += GAP;
    }
    let height = TOP + all + 30.0;
    let title = escaped(table.title);
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{title}\">\n<style>\n{STYLE}</style>\n\
         <text class=\"title\" x=\"10\" y=\"22\">{title}</text>\n\
         <text class=\"faint\" x=\"10\" y=\"40\">times better (right) or worse (left) than the kernel; \
         figures are ubtrfs : kernel</text>\n{body}</svg>\n"
    ))
}

/// Returns a number above 1 when the side's median is better than the kernel's.
fn times_better(row: &Row, side: Side) -> Option<f64> {
    let ratio = row.ratio(side).filter(|ratio| *ratio > 0.0)?;
    Some(if row.unit.more_is_better() {
        ratio
    } else {
        1.0 / ratio
    })
}

fn offset(times: f64, plot: f64) -> f64 {
    (times.clamp(1.0 / MOST, MOST).ln() / MOST.ln()) * plot / 2.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Round, Unit};

    #[test]
    fn better_is_to_the_right_for_times_and_for_rates() {
        let mut table = Table::default();
        for (side, seconds, rate) in [(Side::Kernel, 2.0, 10.0), (Side::Mount, 1.0, 40.0)] {
            let mut round = Round::default();
            round.add("time", Unit::Seconds, seconds);
            round.add("rate <a>", Unit::PerSecond, rate);
            table.add(side, round);
        }
        let times: Vec<_> = table
            .rows
            .iter()
            .map(|row| times_better(row, Side::Mount))
            .collect();
        assert_eq!(times, [Some(2.0), Some(4.0)]);
        let svg = chart(&table).unwrap();
        assert!(svg.contains("rate &lt;a&gt;") && !svg.contains("<a>"));
    }

    #[test]
    fn nothing_to_compare_is_no_chart() {
        let mut round = Round::default();
        round.add("time", Unit::Seconds, 1.0);
        let mut table = Table::default();
        table.add(Side::Kernel, round);
        assert_eq!(chart(&table), None);
    }
}
