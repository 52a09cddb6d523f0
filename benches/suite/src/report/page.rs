//! The page of tables. `docs/benchmarks.md` has those that were published, and text around them.

use std::fmt::Write;

use super::{Report, digits};
use crate::figures::{Side, Table};

/// Renders the page. Charts are in `folder`, named after the workloads; `drawn` lists the existing charts.
pub(crate) fn page(report: &Report, folder: &str, drawn: &[&str]) -> String {
    let machine = &report.machine;
    let mut out = String::from("# ubtrfs against the kernel's btrfs\n\n");
    let _ = writeln!(
        out,
        "Made by `make bench{}` in {:.0} minutes. Every table is from one run in which the sides took turns. \
         Figures are medians, with the least and the most behind them where there was more than one round. A ratio is ubtrfs by the \
         kernel: for times, bytes and latencies less is better, for rates more.\n",
        if report.is_quick { " QUICK=1" } else { "" },
        report.seconds / 60.0
    );
    if report.is_quick {
        let _ = writeln!(
            out,
            "This was a quick run: about a tenth of the work, and short rounds.\n"
        );
    }
    let _ = writeln!(
        out,
        "The machine: {}, {} CPUs, {} MiB of memory, Linux {}, images on {}; {} at commit {}; {}. FUSE over io_uring {}; \
         load {} before the run.\n",
        machine.cpu,
        machine.cpus,
        machine.memory_mib,
        machine.kernel,
        machine.storage,
        machine.ubtrfs,
        machine.commit,
        machine.btrfs_progs,
        if machine.fuse_uring {
            "enabled"
        } else {
            "not enabled"
        },
        machine.load
    );
    let _ = writeln!(
        out,
        "The kernel's btrfs is mounted from a loop device; bytes written are those of that device. For ubtrfs \
         they are what it gave the image to write, as it counts them itself. CPU is the time of all CPUs of the machine, \
         for all that ran.\n"
    );
    for table in &report.tables {
        section(&mut out, table, folder, drawn.contains(&table.name));
    }
    out
}

fn section(out: &mut String, table: &Table, folder: &str, is_drawn: bool) {
    let _ = writeln!(out, "## {}\n\n{}\n", table.title, table.text);
    if is_drawn {
        let _ = writeln!(out, "![{}]({folder}/{}.svg)\n", table.title, table.name);
    }
    for (side, why) in &table.absent {
        let _ = writeln!(out, "{}: {why}.\n", side.name());
    }
    for (what, why) in &table.skipped {
        let _ = writeln!(out, "**Skipped: {what}**: {}.\n", why.trim_end());
    }
    let sides: Vec<Side> = Side::ALL
        .into_iter()
        .filter(|side| table.rows.iter().any(|row| row.values.contains_key(side)))
        .collect();
    if sides.is_empty() {
        return;
    }
    let mut head = String::from("| |");
    let mut line = String::from("|---|");
    for side in &sides {
        let _ = write!(head, " {} |", side.name());
        line.push_str("---:|");
        if *side != Side::Kernel {
            head.push_str(" ratio |");
            line.push_str("---:|");
        }
    }
    let _ = writeln!(out, "{head}\n{line}");
    for row in &table.rows {
        let unit = match row.unit.name() {
            "" => String::new(),
            unit => format!(", {unit}"),
        };
        let _ = write!(out, "| {}{unit} |", row.what);
        for &side in &sides {
            match row.summary(side) {
                None => out.push_str(" |"),
                Some(summary) if row.values[&side].len() > 1 => {
                    let _ = write!(
                        out,
                        " {} ({}-{}) |",
                        digits(summary.median),
                        digits(summary.least),
                        digits(summary.most)
                    );
                }
                Some(summary) => {
                    let _ = write!(out, " {} |", digits(summary.median));
                }
            }
            if side != Side::Kernel {
                let ratio = row
                    .ratio(side)
                    .map_or(String::new(), |ratio| format!("{ratio:.2}"));
                let _ = write!(out, " {ratio} |");
            }
        }
        out.push('\n');
    }
    out.push('\n');
}
