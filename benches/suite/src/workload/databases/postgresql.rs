//! PostgreSQL: a separate server for each run, and pgbench.
//!
//! The server refuses to run as root, so all of its programs run as the user of its package. It has no port: its
//! socket is in the work directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::Done;
use crate::cleanup::{self, Undo};
use crate::kit::Kit;
use crate::run::run_command;

/// Debian installs each version's programs in a separate folder outside of PATH.
const VERSIONS: &str = "/usr/lib/postgresql";
const NEEDED: [&str; 4] = ["initdb", "postgres", "pg_isready", "pgbench"];
const USER: &str = "postgres";
const CLIENTS: &str = "4";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The folder of the programs, and the user that runs them.
#[derive(Debug)]
pub(super) struct Programs {
    dir: PathBuf,
    uid: u32,
    gid: u32,
}

impl Programs {
    /// Finds the programs, or returns the reason why PostgreSQL cannot be measured here.
    pub(super) fn find() -> Result<Programs, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dir = newest_version()
            .into_iter()
            .chain(std::env::split_paths(&path))
            .find(|dir| NEEDED.iter().all(|name| dir.join(name).is_file()))
            .ok_or_else(|| {
                format!(
                    "{} are not together in a folder below {VERSIONS} or in one of PATH; scripts/setup --bench installs them",
                    NEEDED.join(", ")
                )
            })?;
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let (uid, gid) = ids_of(USER, &users)
            .ok_or_else(|| format!("/etc/passwd has no user {USER} to run it as"))?;
        Ok(Programs { dir, uid, gid })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.dir.join(name));
        command.uid(self.uid).gid(self.gid);
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir(path)?;
        Ok(chown(path, Some(self.uid), Some(self.gid))?)
    }
}

fn newest_version() -> Option<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<f64>().ok();
    let mut found: Vec<_> = fs::read_dir(VERSIONS)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((version(&path)?, path.join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").is_file())
        .collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(found.pop()?.1)
}

/// Finds uid and gid in the text of /etc/passwd.
fn ids_of(user: &str, passwd: &str) -> Option<(u32, u32)> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    let mut fields = lines.find(|fields| fields.clone().next() == Some(user))?;
    let uid = fields.nth(2)?.parse().ok()?;
    Some((uid, fields.next()?.parse().ok()?))
}

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    programs: Programs,
    process: Child,
    undo: Undo,
    socket_dir: PathBuf,
}

impl Server {
    /// Creates a cluster in a directory and starts its server.
    pub(super) fn start(kit: &Kit, programs: Programs, dir: &Path) -> Result<Server> {
        let data = dir.join("postgresql");
        programs.make_dir(&data)?;
        let socket_dir = kit.fresh("socket");
        programs.make_dir(&socket_dir)?;
        let mut initdb = programs.command("initdb");
        initdb.args(["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]);
        run_command_of(initdb, &[data.as_os_str()])?;
        let log_path = kit.fresh("postgres.log");
        let log = fs::File::create(&log_path)?;
        let mut command = programs.command("postgres");
        command
            .args(["-c", "listen_addresses=", "-k"])
            .arg(&socket_dir)
            .arg("-D")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let (process, undo) = cleanup::spawn(&mut command).context("cannot run postgres")?;
        let mut server = Server {
            programs,
            process,
            undo,
            socket_dir,
        };
        server.wait_until_ready(&log_path)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let begin = Instant::now();
        while self.client("pg_isready", &["-q"]).is_err() {
            if let Some(status) = self.process.try_wait()? {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("postgres: {status}: {said}");
            }
            if begin.elapsed() > READY_WITHIN {
                bail!("postgres is not ready within {READY_WITHIN:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Creates pgbench's tables: 100,000 accounts for each unit of `scale`.
    pub(super) fn fill(&self, scale: u64) -> Result<()> {
        self.client("pgbench", &["-i", "-q", "-s", &scale.to_string(), USER])?;
        Ok(())
    }

    pub(super) fn run(&self, seconds: u64) -> Result<Done> {
        let seconds = seconds.to_string();
        let words = ["-n", "-c", CLIENTS, "-j", CLIENTS, "-T", &seconds, USER];
        let output = self.client("pgbench", &words)?;
        parse(&output).context("pgbench printed no rate")
    }

    /// Returns the output of a client.
    fn client(&self, name: &str, words: &[&str]) -> Result<String> {
        let mut command = self.programs.command(name);
        command.arg("-h").arg(&self.socket_dir).args(["-U", USER]);
        run_command_of(command, words)
    }

    /// Ends sessions and waits until the server is gone.
    pub(super) fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(self.process.id() as i32).context("a process has an id")?;
        kill_process(pid, Signal::INT)?;
        let begin = Instant::now();
        while self.process.try_wait()?.is_none() {
            if begin.elapsed() > ENDS_WITHIN {
                bail!("postgres does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        cleanup::done(&self.undo);
        Ok(fs::remove_dir(&self.socket_dir)?)
    }
}

fn run_command_of<A: AsRef<OsStr>>(mut command: Command, args: &[A]) -> Result<String> {
    command.args(args);
    Ok(run_command(command)?.output)
}

/// Parses the lines `number of transactions actually processed: 1204` and `tps = 602.418953 (without initial connection
/// time)`.
fn parse(output: &str) -> Option<Done> {
    let after = |start: &str| {
        let mut lines = output.lines().rev();
        let text = lines.find_map(|line| line.strip_prefix(start))?;
        text.split(['/', ' ']).next()?.parse().ok()
    };
    Some(Done {
        transactions: after("number of transactions actually processed: ")?,
        per_second: after("tps = ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_rate_are_understood() {
        let text = "number of clients: 4\nnumber of transactions actually processed: 1204\n\
                    number of failed transactions: 0 (0.000%)\nlatency average = 6.639 ms\n\
                    tps = 602.418953 (without initial connection time)\n";
        let done = Done {
            transactions: 1204.0,
            per_second: 602.418953,
        };
        assert_eq!(parse(text), Some(done));
        assert_eq!(parse("pgbench: error: no connection"), None);
    }

    #[test]
    fn ids_are_those_of_the_user_with_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:8::/:/bin/sh\n\
                      postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(ids_of("postgres", passwd), Some((101, 104)));
        assert_eq!(ids_of("nobody", passwd), None);
    }
}
