//! PostgreSQL with 4 pgbench clients. Their log shows which commits were acknowledged.
//!
//! PostgreSQL refuses to run as root, so root runs its programs as the user that its package creates. It
//! listens on no port. Its socket is outside the mount, as is the log of the clients.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use ubtrfs_sim::Rng;

use crate::databases::{Database, assert_survives};
use crate::fixture::{expect_success, say};

/// Debian stores each version's programs in a separate folder, which is not in PATH.
const VERSIONS: &str = "/usr/lib/postgresql";
const NEEDED: [&str; 7] = [
    "initdb",
    "postgres",
    "pg_isready",
    "pgbench",
    "psql",
    "pg_amcheck",
    "pg_checksums",
];
const USER: &str = "postgres";
const CLIENTS: u64 = 4;
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Methods of syncing the write-ahead log, used in turn.
const SYNC_METHODS: [&str; 4] = ["fdatasync", "open_datasync", "fsync", "open_sync"];
/// Small segments and frequent checkpoints, so that some kills happen during these.
const SETTINGS: [&str; 4] = [
    "listen_addresses=",
    "max_wal_size=8MB",
    "min_wal_size=4MB",
    "checkpoint_timeout=30s",
];

const SCHEMA: &str = "CREATE EXTENSION amcheck;
    CREATE TABLE acknowledged (round int, client int, n int, filler text, PRIMARY KEY (round, client, n));";

/// pgbench's own transaction, which also counts itself. A client's variables persist from one transaction to
/// the next.
const TRANSACTION: &str = r"\set n :n + 1
\set aid random(1, 100000)
\set bid 1
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
INSERT INTO acknowledged VALUES (:round, :client_id, :n, repeat('x', :aid % 300));
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
COMMIT;
";

const SUMS_AGREE: &str = "SELECT count(DISTINCT sum) FROM (
    SELECT sum(abalance) FROM pgbench_accounts UNION ALL SELECT sum(tbalance) FROM pgbench_tellers
    UNION ALL SELECT sum(bbalance) FROM pgbench_branches UNION ALL SELECT coalesce(sum(delta), 0) FROM pgbench_history
) AS sums;";

/// The folder of the programs, and the user that runs them.
#[derive(Clone)]
struct Programs {
    dir: PathBuf,
    uid: u32,
    gid: u32,
}

impl Programs {
    /// Returns the reason if PostgreSQL cannot run here.
    fn find() -> Result<Programs, String> {
        let found = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let mut dirs: Vec<_> = found.map(|entry| entry.path().join("bin")).collect();
        dirs.sort();
        let has_all = |dir: &PathBuf| NEEDED.iter().all(|name| dir.join(name).is_file());
        let dir =
            dirs.into_iter().rev().find(has_all).ok_or_else(|| {
                format!("no PostgreSQL below {VERSIONS}; scripts/setup installs it")
            })?;
        let me = fs::metadata("/proc/self").map_err(|error| error.to_string())?;
        let (uid, gid) = if geteuid().is_root() {
            let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
            ids_of(USER, &users).ok_or_else(|| format!("/etc/passwd has no user {USER}"))?
        } else {
            (me.uid(), me.gid())
        };
        Ok(Programs { dir, uid, gid })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.dir.join(name));
        if geteuid().is_root() {
            command.uid(self.uid).gid(self.gid);
        }
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    fn make_dir(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        chown(path, Some(self.uid), Some(self.gid)).unwrap();
    }
}

/// Returns uid and gid, from the text of /etc/passwd.
fn ids_of(user: &str, passwd: &str) -> Option<(u32, u32)> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    let mut fields = lines.find(|fields| fields.clone().next() == Some(user))?;
    let uid = fields.nth(2)?.parse().ok()?;
    Some((uid, fields.next()?.parse().ok()?))
}

/// A running server.
struct Server {
    programs: Programs,
    process: Child,
    socket_dir: PathBuf,
    /// Reads the output of the server and all of its processes, until the last of them is gone.
    said: Option<JoinHandle<String>>,
}

impl Server {
    fn start(programs: &Programs, data: &Path, socket_dir: &Path, sync_method: &str) -> Server {
        let mut command = programs.command("postgres");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(["-c", &format!("wal_sync_method={sync_method}"), "-k"])
            .arg(socket_dir)
            .arg("-D")
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stderr = process.stderr.take().unwrap();
        let said = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut server = Server {
            programs: programs.clone(),
            process,
            socket_dir: socket_dir.into(),
            said: Some(said),
        };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        let begin = Instant::now();
        let mut ask = self.client("pg_isready");
        while !ask.arg("-q").status().unwrap().success() {
            if self.process.try_wait().unwrap().is_some() || begin.elapsed() > READY_WITHIN {
                panic!("postgres is not ready: {}", self.end_by(Signal::QUIT));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self, name: &str) -> Command {
        let mut command = self.programs.command(name);
        command.arg("-h").arg(&self.socket_dir).args(["-U", USER]);
        command
    }

    /// Returns the output of an SQL script, in lines of fields between `|`.
    fn sql(&self, script: &str) -> String {
        let mut psql = self.client("psql");
        let output = psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", script, USER]);
        let output = output.output().unwrap();
        expect_success(script, &output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the output, once no process of the server is left.
    fn end_by(&mut self, signal: Signal) -> String {
        let _ = kill_process(Pid::from_child(&self.process), signal);
        let _ = self.process.wait();
        let said = self.said.take();
        said.map_or_else(String::new, |said| said.join().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.said.is_some() {
            let said = self.end_by(Signal::QUIT);
            if thread::panicking() {
                say(&said);
            }
        }
    }
}

/// A client's session in a round.
type Session = (u64, u64);

struct Postgresql {
    programs: Programs,
    /// A directory on another file system, for sockets and the log of the clients.
    aside: tempfile::TempDir,
    starts: usize,
    /// The last transaction of each session that must be present.
    acknowledged: BTreeMap<Session, u64>,
    /// The round whose sessions the last kill ended. Each may have committed one more transaction.
    cut_off: u64,
    found: BTreeMap<Session, u64>,
}

impl Postgresql {
    fn new(programs: Programs) -> Postgresql {
        let aside = tempfile::tempdir().unwrap();
        chown(aside.path(), Some(programs.uid), Some(programs.gid)).unwrap();
        Postgresql {
            programs,
            aside,
            starts: 0,
            acknowledged: BTreeMap::new(),
            cut_off: 0,
            found: BTreeMap::new(),
        }
    }

    fn start(&mut self, dir: &Path) -> Server {
        let method = SYNC_METHODS[self.starts % SYNC_METHODS.len()];
        self.starts += 1;
        let data = dir.join("postgresql");
        Server::start(&self.programs, &data, self.aside.path(), method)
    }

    fn log_prefix(&self, round: u64) -> PathBuf {
        self.aside.path().join(format!("round-{round}"))
    }

    /// Starts the clients. They end when the server does.
    fn start_clients(&self, server: &Server, round: u64, rng: &mut Rng) -> Child {
        let script = self.aside.path().join("transaction.sql");
        fs::write(&script, TRANSACTION).unwrap();
        let mut pgbench = server.client("pgbench");
        pgbench
            .args(["-n", "-M", "prepared", "-T", "3600", "-D", "n=0"])
            .args(["-c", &CLIENTS.to_string()])
            .args(["-D", &format!("round={round}")])
            .arg(format!("--random-seed={}", rng.next_u64() >> 2))
            .arg("--log")
            .arg(format!("--log-prefix={}", self.log_prefix(round).display()))
            .arg("-f")
            .arg(&script)
            .arg(USER)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        pgbench.spawn().unwrap()
    }

    /// Reads the log of the clients, one line for each commit, and returns the number of lines.
    fn take_log(&mut self, round: u64, pgbench: u32) -> u64 {
        let prefix = self.log_prefix(round);
        let path = format!("{}.{pgbench}", prefix.display());
        let log = fs::read_to_string(path).unwrap();
        for client in 0..CLIENTS {
            self.acknowledged.insert((round, client), 0);
        }
        for line in log.lines() {
            let client: u64 = line.split(' ').next().unwrap().parse().unwrap();
            *self.acknowledged.get_mut(&(round, client)).unwrap() += 1;
        }
        self.cut_off = round;
        log.lines().count() as u64
    }

    fn assert_has_acknowledged(&mut self, server: &Server, by: &str) {
        let of_sessions =
            "SELECT round, client, count(*), max(n) FROM acknowledged GROUP BY round, client;";
        self.found.clear();
        for line in server.sql(of_sessions).lines() {
            let fields: Vec<u64> = line
                .split('|')
                .map(|field| field.parse().unwrap())
                .collect();
            assert_eq!(
                fields[2], fields[3],
                "{by}: a transaction is missing: {line}"
            );
            self.found.insert((fields[0], fields[1]), fields[2]);
        }
        for (session, acknowledged) in &self.acknowledged {
            let found = self.found.get(session).copied().unwrap_or(0);
            let more = u64::from(session.0 == self.cut_off);
            let wanted = *acknowledged..=acknowledged + more;
            assert!(
                wanted.contains(&found),
                "{by}: {session:?} has {found} transactions, {wanted:?} were expected"
            );
        }
    }
}

impl Database for Postgresql {
    fn create(&mut self, dir: &Path) {
        let data = dir.join("postgresql");
        self.programs.make_dir(&data);
        let mut initdb = self.programs.command("initdb");
        initdb.args([
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--data-checksums",
        ]);
        initdb
            .args(["--wal-segsize=1", "-U", USER, "-D"])
            .arg(&data);
        expect_success("initdb", &initdb.output().unwrap());
        let mut server = self.start(dir);
        let mut pgbench = server.client("pgbench");
        let filled = pgbench.args(["-i", "-q", "-s", "1", USER]).output();
        expect_success("pgbench -i", &filled.unwrap());
        server.sql(SCHEMA);
        server.end_by(Signal::INT);
    }

    fn work_and_kill(&mut self, dir: &Path, round: u64, mut mount: Child, rng: &mut Rng) -> u64 {
        let mut server = self.start(dir);
        let clients = self.start_clients(&server, round, rng);
        thread::sleep(Duration::from_millis(500 + rng.below(3000)));
        mount.kill().unwrap();
        mount.wait().unwrap();
        let id = clients.id();
        let said = server.end_by(Signal::QUIT);
        let ended = clients.wait_with_output().unwrap();
        let by_clients = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{by_clients}\n{said}");
        self.take_log(round, id)
    }

    fn verify(&mut self, dir: &Path, by: &str) {
        let mut server = self.start(dir);
        self.assert_has_acknowledged(&server, by);
        assert_eq!(server.sql(SUMS_AGREE).trim(), "1", "{by}: sums differ");
        let mut amcheck = server.client("pg_amcheck");
        let checked = amcheck.args(["--heapallindexed", "--parent-check", "-d", USER]);
        expect_success(&format!("{by}: pg_amcheck"), &checked.output().unwrap());
        let said = server.end_by(Signal::INT);
        assert!(said.contains("automatic recovery in progress"), "{said}");
        let mut checksums = self.programs.command("pg_checksums");
        let checked = checksums.arg("--check").arg(dir.join("postgresql"));
        expect_success(&format!("{by}: pg_checksums"), &checked.output().unwrap());
    }

    fn accept(&mut self) {
        self.acknowledged.extend(&self.found);
    }
}

#[test]
fn commits_of_postgresql_survive_a_killed_server() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    match Programs::find() {
        Ok(programs) => assert_survives("PostgreSQL", &mut Postgresql::new(programs)),
        Err(why) => ubtrfs_sim::skip(why),
    }
}
