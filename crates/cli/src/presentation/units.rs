//! Sizes in the formats of btrfs-progs, and the options that select one.
//!
//! As in btrfs-progs, a human-readable size is truncated at the unit below the displayed one, not rounded,
//! and divided in single precision. The output is therefore digit by digit the same.

#[cfg(test)]
mod tests;

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

/// The format of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Units {
    raw: bool,
    decimal: bool,
    /// Index of the unit for all sizes. None selects one for each size.
    fixed: Option<usize>,
}

impl Units {
    pub(crate) const RAW: Units = Units {
        raw: true,
        decimal: false,
        fixed: None,
    };

    /// Returns whether this is the default format. Other formats need wider columns.
    pub(crate) fn is_default(self) -> bool {
        self == Units::default()
    }

    pub(crate) fn size(self, bytes: u64) -> String {
        if self.raw {
            return bytes.to_string();
        }
        self.magnitude(bytes)
    }

    /// Formats a difference. It may be negative on a damaged or overcommitted volume.
    pub(crate) fn signed(self, bytes: i64) -> String {
        if self.raw {
            return bytes.to_string();
        }
        let sign = if bytes < 0 { "-" } else { "" };
        format!("{sign}{}", self.magnitude(bytes.unsigned_abs()))
    }

    fn magnitude(self, bytes: u64) -> String {
        let (step, suffixes): (u64, _) = if self.decimal {
            (1000, DECIMAL)
        } else {
            (1024, BINARY)
        };
        let (value, divisor, unit) = match self.fixed {
            Some(unit) => (bytes, step.pow(unit as u32), unit),
            None => {
                let (mut value, mut last, mut unit) = (bytes, bytes, 0);
                while value >= step {
                    last = value;
                    value /= step;
                    unit += 1;
                }
                (last, if unit == 0 { 1 } else { step }, unit)
            }
        };
        let suffix = suffixes.get(unit).copied().unwrap_or("?");
        format!("{:.2}{suffix}", value as f32 / divisor as f32)
    }
}

/// The unit options of commands whose short letters are taken. The last one counts.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Units")]
pub(crate) struct LongUnits {
    /// Raw numbers in bytes
    #[arg(long, overrides_with_all = ["human_readable", "iec", "si"])]
    raw: bool,
    /// Human friendly numbers, base 1024 (default)
    #[arg(long, overrides_with_all = ["raw", "iec", "si", "kbytes", "mbytes", "gbytes", "tbytes"])]
    human_readable: bool,
    /// Use 1024 as a base (KiB, MiB, GiB, TiB)
    #[arg(long, overrides_with_all = ["raw", "si"])]
    iec: bool,
    /// Use 1000 as a base (kB, MB, GB, TB)
    #[arg(long, overrides_with_all = ["raw", "iec"])]
    si: bool,
    /// Show sizes in KiB, or kB with --si
    #[arg(long, overrides_with_all = ["mbytes", "gbytes", "tbytes"])]
    kbytes: bool,
    /// Show sizes in MiB, or MB with --si
    #[arg(long, overrides_with_all = ["kbytes", "gbytes", "tbytes"])]
    mbytes: bool,
    /// Show sizes in GiB, or GB with --si
    #[arg(long, overrides_with_all = ["kbytes", "mbytes", "tbytes"])]
    gbytes: bool,
    /// Show sizes in TiB, or TB with --si
    #[arg(long, overrides_with_all = ["kbytes", "mbytes", "gbytes"])]
    tbytes: bool,
}

impl LongUnits {
    pub(crate) fn units(self) -> Units {
        let fixed = [self.tbytes, self.gbytes, self.mbytes, self.kbytes];
        Units {
            raw: self.raw,
            decimal: self.si,
            fixed: largest_unit(fixed),
        }
    }
}

/// The unit options with the short letters of df(1). The last one counts.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Units")]
pub(crate) struct ShortUnits {
    /// Raw numbers in bytes
    #[arg(short = 'b', long, overrides_with_all = ["human_readable", "iec", "si", "human_decimal"])]
    raw: bool,
    /// Human friendly numbers, base 1024 (default)
    #[arg(short = 'h', long, overrides_with_all = ["raw", "iec", "si", "human_decimal", "kbytes", "mbytes", "gbytes", "tbytes"])]
    human_readable: bool,
    /// Human friendly numbers, base 1000
    #[arg(short = 'H', overrides_with_all = ["raw", "iec", "si", "human_readable"])]
    human_decimal: bool,
    /// Use 1024 as a base (KiB, MiB, GiB, TiB)
    #[arg(long, overrides_with_all = ["raw", "si", "human_decimal"])]
    iec: bool,
    /// Use 1000 as a base (kB, MB, GB, TB)
    #[arg(long, overrides_with_all = ["raw", "iec"])]
    si: bool,
    /// Show sizes in KiB, or kB with --si
    #[arg(short, long, overrides_with_all = ["mbytes", "gbytes", "tbytes"])]
    kbytes: bool,
    /// Show sizes in MiB, or MB with --si
    #[arg(short, long, overrides_with_all = ["kbytes", "gbytes", "tbytes"])]
    mbytes: bool,
    /// Show sizes in GiB, or GB with --si
    #[arg(short, long, overrides_with_all = ["kbytes", "mbytes", "tbytes"])]
    gbytes: bool,
    /// Show sizes in TiB, or TB with --si
    #[arg(short, long, overrides_with_all = ["kbytes", "mbytes", "gbytes"])]
    tbytes: bool,
}

impl ShortUnits {
    pub(crate) fn units(self) -> Units {
        let fixed = [self.tbytes, self.gbytes, self.mbytes, self.kbytes];
        Units {
            raw: self.raw,
            decimal: self.si || self.human_decimal,
            fixed: largest_unit(fixed),
        }
    }
}

/// Returns the index of the largest requested unit, of TiB, GiB, MiB and KiB.
fn largest_unit(asked: [bool; 4]) -> Option<usize> {
    asked.iter().position(|&asked| asked).map(|at| 4 - at)
}
