//! SQLite with each kind of journal, and a concurrent writer for each.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use ubtrfs_sim::Rng;

use crate::databases::{Database, assert_survives};
use crate::fixture::{churn, expect_success, system};

/// A journal mode, and the setting that makes a commit durable when it returns.
///
/// EXTRA syncs the directory that the rollback journal is deleted from. Without it the journal may reappear
/// after a crash and undo the commit.
const MODES: [(&str, &str); 4] = [
    ("wal", "FULL"),
    ("delete", "EXTRA"),
    ("truncate", "FULL"),
    ("persist", "FULL"),
];

/// In this mode SQLite syncs the directory last, and reports a commit even if it cannot open the directory.
/// The kill may happen between the two. So only commits reported before the kill count.
const TELLS_TOO_MUCH: &str = "delete";

const SCHEMA: &str =
    "CREATE TABLE t (id INTEGER PRIMARY KEY, len INTEGER, v TEXT, changes INTEGER);
    CREATE INDEX by_changes ON t (changes, len);";

/// The database of a mode.
struct Journalled {
    mode: &'static str,
    synchronous: &'static str,
    /// The number of transactions that must be present, numbered from 1.
    acknowledged: u64,
    /// The last transaction that the program reported.
    reported: u64,
    /// The number of transactions that the last recovery found.
    found: u64,
}

struct Sqlite(Vec<Journalled>);

impl Journalled {
    fn program(&self, dir: &Path) -> Command {
        let mut command = system("stdbuf");
        // stdbuf makes the program print each line at once. By default it writes to a pipe in blocks.
        command
            .args(["-oL", "sqlite3", "-bail", "-batch"])
            .arg(dir.join(format!("{}.db", self.mode)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns the settings of a script. The WAL is often written back, so that some kills happen during
    /// that.
    fn pragmas(&self) -> String {
        format!(
            "PRAGMA journal_mode={};\nPRAGMA synchronous={};\nPRAGMA wal_autocheckpoint=60;\nPRAGMA busy_timeout=10000;\n",
            self.mode, self.synchronous
        )
    }

    /// Runs a script to its end and returns its output.
    fn run(&self, dir: &Path, script: &str, by: &str) -> String {
        let mut child = self.program(dir).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        expect_success(&format!("{by}: sqlite3 of {}", self.mode), &output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs transactions until the program ends, and sends the number of each commit that it acknowledged.
    fn write_and_report(&self, dir: &Path, mut rng: Rng, sender: &Sender<(&'static str, u64)>) {
        let mut child = self.program(dir).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (pragmas, first) = (self.pragmas(), self.acknowledged + 1);
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = input.write_all(pragmas.as_bytes());
                for number in first.. {
                    let text = transaction(number, &mut rng);
                    if input.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
            for line in output.lines().map_while(Result::ok) {
                let number = line.strip_prefix("commit ").map(str::parse);
                if let Some(number) = number {
                    sender.send((self.mode, number.unwrap())).unwrap();
                }
            }
        });
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "it did not meet the kill: {said}");
    }

    fn verify(&mut self, dir: &Path, by: &str) {
        let script = format!(
            "{}SELECT 'answers'; PRAGMA integrity_check; SELECT count(*), ifnull(max(id), 0), ifnull(sum(changes), 0) FROM t;
             SELECT count(*) FROM t WHERE v <> replace(hex(zeroblob(len)), '00', id || ' ');",
            self.pragmas()
        );
        let output = self.run(dir, &script, by);
        let (_, answers) = output.split_once("answers\n").unwrap();
        let mode = self.mode;
        let wrong = || panic!("{by}: {mode}: {answers}");
        let [is_sound, sums, differing] = answers.lines().collect::<Vec<_>>()[..] else {
            wrong()
        };
        let sums: Vec<u64> = sums.split('|').map(|sum| sum.parse().unwrap()).collect();
        let found = sums[0];
        if (is_sound, differing) != ("ok", "0") || sums != [found; 3] {
            wrong();
        }
        // The transaction in progress may also be present.
        let wanted = self.acknowledged..=self.reported + 1;
        assert!(
            wanted.contains(&found),
            "{by}: {mode}: {found} transactions, {wanted:?} were expected"
        );
        self.found = found;
    }
}

/// Returns a transaction that prints its number once it is committed.
fn transaction(number: u64, rng: &mut Rng) -> String {
    let len = match rng.below(8) {
        0 => rng.below(4000),
        _ => rng.below(100),
    };
    let changed = 1 + rng.below(number);
    format!(
        "BEGIN IMMEDIATE;
         INSERT INTO t VALUES ({number}, {len}, replace(hex(zeroblob({len})), '00', {number} || ' '), 0);
         UPDATE t SET changes = changes + 1 WHERE id = {changed};
         COMMIT;
         SELECT 'commit {number}';\n"
    )
}

impl Database for Sqlite {
    fn create(&mut self, dir: &Path) {
        for database in &self.0 {
            let script = format!("{}{SCHEMA}", database.pragmas());
            let said = database.run(dir, &script, "ubtrfs");
            assert!(said.starts_with(database.mode), "{said}");
        }
    }

    fn work_and_kill(&mut self, dir: &Path, round: u64, mut server: Child, rng: &mut Rng) -> u64 {
        let enough = 20 + rng.below(400) as usize;
        let is_over = AtomicBool::new(false);
        let (mut acknowledged, mut late) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let (sender, heard) = channel();
            for database in &self.0 {
                let (sender, rng) = (sender.clone(), Rng::new(rng.next_u64()));
                scope.spawn(move || database.write_and_report(dir, rng, &sender));
            }
            drop(sender);
            let churner = Rng::new(rng.next_u64());
            let is_over = &is_over;
            scope.spawn(move || churn(dir, &format!("r{}", round % 3), churner, is_over));
            acknowledged.extend(heard.iter().take(enough));
            server.kill().unwrap();
            server.wait().unwrap();
            is_over.store(true, Ordering::Relaxed);
            // Commits that returned before the kill count as well.
            late.extend(heard.iter());
        });
        let commits = acknowledged.len() + late.len();
        assert!(commits >= enough, "writers gave up after {commits}");
        for database in &mut self.0 {
            let last_of = |reported: &[(&str, u64)]| {
                let of_it = reported.iter().filter(|(mode, _)| *mode == database.mode);
                of_it.map(|(_, number)| *number).max()
            };
            let (before, after) = (last_of(&acknowledged), last_of(&late));
            let reported = after.or(before).unwrap_or(database.acknowledged);
            let is_sure = database.mode != TELLS_TOO_MUCH;
            database.acknowledged = if is_sure {
                reported
            } else {
                before.unwrap_or(database.acknowledged)
            };
            database.reported = reported;
        }
        commits as u64
    }

    fn verify(&mut self, dir: &Path, by: &str) {
        for database in &mut self.0 {
            database.verify(dir, by);
        }
    }

    fn accept(&mut self) {
        for database in &mut self.0 {
            (database.acknowledged, database.reported) = (database.found, database.found);
        }
    }
}

#[test]
fn commits_of_sqlite_survive_a_killed_server() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    for program in ["sqlite3", "stdbuf"] {
        if let Err(error) = system(program).arg("--version").output() {
            ubtrfs_sim::skip(format_args!("{program}: {error}"));
            return;
        }
    }
    let databases = MODES.map(|(mode, synchronous)| Journalled {
        mode,
        synchronous,
        acknowledged: 0,
        reported: 0,
        found: 0,
    });
    assert_survives("SQLite", &mut Sqlite(databases.into()));
}
