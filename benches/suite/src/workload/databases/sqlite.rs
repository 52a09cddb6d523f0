//! SQLite, from Python's standard library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Done;
use crate::run::run;

/// A way to make transactions atomic and durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    journal_mode: &'static str,
    /// With `OFF` a transaction is a single update of a random row. Nothing is durable, so that many parts of the file
    /// wait for the write-back.
    synchronous: &'static str,
    rows: &'static str,
}

pub(super) const MODES: [Mode; 3] = [
    Mode {
        name: "SQLite, rollback journal",
        journal_mode: "delete",
        synchronous: "FULL",
        rows: "10000",
    },
    Mode {
        name: "SQLite, WAL",
        journal_mode: "wal",
        synchronous: "FULL",
        rows: "10000",
    },
    Mode {
        name: "SQLite, random updates, synchronous=OFF",
        journal_mode: "delete",
        synchronous: "OFF",
        rows: "500000",
    },
];

/// Arguments: the database, the journal mode, `synchronous`, the rows of the table, and seconds; with 0 seconds it
/// makes the table.
///
/// It prints the number of transactions and the seconds.
const SCRIPT: &str = r#"
import random, sqlite3, sys, time

path, mode, synchronous = sys.argv[1:4]
all_rows, seconds = int(sys.argv[4]), float(sys.argv[5])
db = sqlite3.connect(path, isolation_level=None)
found = db.execute("PRAGMA journal_mode=" + mode).fetchone()[0]
if found != mode:
    sys.exit(f"journal_mode is {found}, not {mode}")
db.execute("PRAGMA synchronous=" + synchronous)
row = b"x" * 100
if seconds == 0:
    db.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB, changes INTEGER)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO t (v, changes) VALUES (?, 0)", [(row,)] * all_rows)
    db.execute("COMMIT")
count = 0
inserts = synchronous == "FULL"
random.seed(1)
begin = time.monotonic()
while time.monotonic() - begin < seconds:
    if inserts:
        key = count * 7919 % all_rows + 1
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t (v, changes) VALUES (?, 0)", (row,))
    else:
        key = random.randint(1, all_rows)
    db.execute("UPDATE t SET changes = changes + 1 WHERE k = ?", (key,))
    if inserts:
        db.execute("COMMIT")
    count += 1
took = time.monotonic() - begin
rows, changes = db.execute("SELECT count(*), sum(changes) FROM t").fetchone()
if changes != count or rows != all_rows + (count if inserts else 0):
    sys.exit(f"{rows} rows with {changes} changes after {count} transactions")
db.close()
print(count, took)
"#;

/// Returns the reason why SQLite cannot be measured here.
pub(super) fn why_not() -> Option<String> {
    let error = run("python3", &["-c", "import sqlite3"]).err()?;
    Some(format!("no python3 with its module sqlite3: {error:#}"))
}

/// A database with a table.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    mode: Mode,
}

impl Database {
    pub(super) fn make(dir: &Path, mode: Mode) -> Result<Database> {
        let path = dir.join("database");
        let database = Database { path, mode };
        database.call(0)?;
        Ok(database)
    }

    pub(super) fn run(&self, seconds: u64) -> Result<Done> {
        parse(&self.call(seconds)?).context("the script printed no count")
    }

    /// Returns the output of the script.
    fn call(&self, seconds: u64) -> Result<String> {
        let seconds = seconds.to_string();
        let args: [&OsStr; 7] = [
            "-c".as_ref(),
            SCRIPT.as_ref(),
            self.path.as_os_str(),
            self.mode.journal_mode.as_ref(),
            self.mode.synchronous.as_ref(),
            self.mode.rows.as_ref(),
            seconds.as_ref(),
        ];
        Ok(run("python3", &args)?.output)
    }
}

fn parse(output: &str) -> Option<Done> {
    let (count, took) = output.trim().split_once(' ')?;
    let transactions: f64 = count.parse().ok()?;
    let seconds: f64 = took.parse().ok()?;
    Some(Done {
        transactions,
        per_second: transactions / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::{Done, parse};

    #[test]
    fn count_and_seconds_are_understood() {
        let done = Done {
            transactions: 300.0,
            per_second: 200.0,
        };
        assert_eq!(parse("300 1.5\n"), Some(done));
        assert_eq!(parse(""), None);
    }
}
