//! `cargo xtask units`: all tests of the workspace, with some test programs in parallel.
//!
//! Cargo runs one program after another, but they wait for disks and clocks for more than half of their time.
//!
//! - UNITS-1: every program that cargo would run runs, from the folder of its package.
//! - UNITS-2: a failing program does not prevent others from running. All failures are listed at the end.
//! - UNITS-3: no program sees the mounts of another, if namespaces can be created. Tests create some themselves.
//!   These would keep a copy of another program's mount, which would stay alive after that program has unmounted it.
//!   If `/` is shared, an unmount outside also removes the copies in these namespaces.
//! - UNITS-4: a program ends with the runner, if `setpriv` is installed. Its servers may keep running.
//! - UNITS-5: the summary counts skipped tests, for each program and reason.
//! - UNITS-6: `--without-root` runs the programs as a user that owns nothing, and may write to `target/tmp`. Tests
//!   that need root are skipped then. Documentation tests are left out, because that user has no cargo.
//!
//! Programs write to files, since a server left by a test would keep a pipe open.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of concurrent programs. Each has one thread per CPU.
const AT_ONCE: usize = 2;
/// The number of times in the summary.
const SHOWN: usize = 12;
/// The folder of logs, below cargo's target folder.
const LOGS: &str = "units";
/// Runs a program that gets a SIGTERM when its waiting thread is gone.
const ENDING_WITH_US: &[&str] = &["setpriv", "--pdeathsig", "TERM", "--"];
/// Runs a program in a mount namespace, which exists as long as the program and its remaining servers.
const IN_NAMESPACE: &[&str] = &["unshare", "--mount", "--propagation", "slave", "--"];

/// Runs a program as `nobody`. A change of the user resets the signal of [`ENDING_WITH_US`].
const WITHOUT_ROOT: &[&str] = &[
    "setpriv",
    "--reuid",
    "nobody",
    "--regid",
    "nogroup",
    "--clear-groups",
    "--pdeathsig",
    "TERM",
    "--",
];

/// The longest programs, which begin first. Otherwise one would run alone at the end.
const LONGEST: &[&str] = &[
    "crates/fs/tests/log/main.rs",
    "crates/cli/tests/cli/main.rs",
    "crates/check/tests/check/main.rs",
    "crates/fuse/tests/conformance.rs",
    "crates/fs/tests/survival/main.rs",
    "crates/cli/tests/rootdir/main.rs",
    "crates/cli/tests/mounts/main.rs",
    "crates/fs/src/lib.rs",
    "crates/cli/tests/memory.rs",
    "crates/mkfs/tests/mkfs/main.rs",
    "crates/stream/tests/send/main.rs",
    "crates/cli/tests/killed/main.rs",
    "crates/fuse/tests/posix.rs",
    "crates/cli/tests/receive/main.rs",
];

/// A program of tests that cargo has built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Its main source file, below the folder of the workspace.
    source: String,
    executable: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
}

enum Job {
    /// The documentation tests of all crates, which cargo runs.
    DocTests,
    Program(Program),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::DocTests => f.write_str("documentation"),
            Job::Program(program) => f.write_str(&program.source),
        }
    }
}

struct Ran {
    name: String,
    took: Duration,
    /// None if it passed.
    failure: Option<String>,
    /// The number of skipped tests, or parts of tests, by reason.
    skips: BTreeMap<String, usize>,
}

pub(crate) fn run(root: &Path, args: &[&str]) -> ExitCode {
    let began = Instant::now();
    // A closed pipe does not stop the run.
    let show = |text: &[u8]| drop(io::stdout().write_all(text));
    let (without_root, args) = match args {
        ["--without-root", rest @ ..] => (true, rest),
        all => (false, all),
    };
    let ran = build(root).and_then(|programs| {
        let mut runner = Runner::new(root, args, &show);
        let mut jobs = jobs_of(programs);
        if without_root {
            runner.leave_root()?;
            jobs.retain(|job| matches!(job, Job::Program(_)));
        }
        runner.run_all(jobs)
    });
    let mut ran = match ran {
        Ok(ran) => ran,
        Err(why) => {
            eprintln!("units: {why}");
            return ExitCode::FAILURE;
        }
    };
    show(summary(&mut ran, began.elapsed()).as_bytes());
    if ran.iter().all(|ran| ran.failure.is_none()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds all tests, and returns their programs.
fn build(root: &Path) -> Result<Vec<Program>, String> {
    let built = cargo(root)
        .args(["test", "--workspace", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err("cannot build the tests".into());
    }
    let said = String::from_utf8_lossy(&built.stdout);
    let root = root.to_string_lossy();
    let programs: Vec<Program> = said.lines().filter_map(|line| parse(line, &root)).collect();
    if programs.is_empty() {
        Err("cargo names no tests".into())
    } else {
        Ok(programs)
    }
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    // Make's job server is not available to a cargo that make did not start: each compiler would warn about it.
    cargo.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    cargo
}

/// Parses a message of cargo. Returns None if it is not about a test program.
fn parse(message: &str, root: &str) -> Option<Program> {
    let (_, profile) = message.split_once(r#""profile":{"#)?;
    let (profile, _) = profile.split_once('}')?;
    if !profile.contains(r#""test":true"#) {
        return None;
    }
    let source = string_of(message, "src_path")?;
    let source = source.strip_prefix(root).unwrap_or(&source);
    let manifest = PathBuf::from(string_of(message, "manifest_path")?);
    Some(Program {
        source: source.trim_start_matches('/').to_owned(),
        executable: string_of(message, "executable")?.into(),
        folder: manifest.parent()?.to_path_buf(),
    })
}

/// Returns the first string of this name in a line of JSON.
fn string_of(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!(r#""{name}":""#))?;
    let mut text = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            // Paths contain no other characters that JSON escapes.
            '\\' => text.push(chars.next()?),
            char => text.push(char),
        }
    }
}

/// Moves the longest programs to the front, and keeps the order of the others.
fn sort(programs: &mut [Program]) {
    programs.sort_by_key(|program| {
        let place = LONGEST.iter().position(|source| program.source == *source);
        place.unwrap_or(LONGEST.len())
    });
}

/// Puts the tests that cargo runs before all programs: cargo waits for another building cargo, and `make test` begins
/// without one.
fn jobs_of(mut programs: Vec<Program>) -> VecDeque<Job> {
    sort(&mut programs);
    let programs = programs.into_iter().map(Job::Program);
    std::iter::once(Job::DocTests).chain(programs).collect()
}

/// A runner of jobs.
struct Runner<'a> {
    root: &'a Path,
    /// The folder of the output of programs.
    logs: PathBuf,
    args: &'a [&'a str],
    /// The words before each program, from [`ENDING_WITH_US`] and [`IN_NAMESPACE`], as far as these work here.
    prefix: Vec<&'static str>,
    without_root: bool,
    /// Prints a text without interleaving.
    show: &'a (dyn Fn(&[u8]) + Sync),
}

impl<'a> Runner<'a> {
    fn new(root: &'a Path, args: &'a [&'a str], show: &'a (dyn Fn(&[u8]) + Sync)) -> Runner<'a> {
        let mut prefix = Vec::new();
        for (words, lack) in [
            (ENDING_WITH_US, "programs outlive the runner"),
            (IN_NAMESPACE, "no mount namespaces"),
        ] {
            let longer = [&prefix, words].concat();
            match attempt(&longer) {
                Ok(()) => prefix = longer,
                Err(why) => show(format!("units: {lack}: {why}\n").as_bytes()),
            }
        }
        Runner {
            root,
            logs: crate::target(root).join(LOGS),
            args,
            prefix,
            without_root: false,
            show,
        }
    }

    /// UNITS-6
    fn leave_root(&mut self) -> Result<(), String> {
        self.prefix.extend(WITHOUT_ROOT);
        self.without_root = true;
        let scratch = crate::target(self.root).join("tmp");
        fs::create_dir_all(&scratch)
            .and_then(|()| fs::set_permissions(&scratch, fs::Permissions::from_mode(0o1777)))
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        attempt(&self.prefix).map_err(|why| format!("programs cannot run without root: {why}"))
    }

    /// UNITS-2: a failure is an outcome like any other here.
    fn run_all(&self, jobs: VecDeque<Job>) -> Result<Vec<Ran>, String> {
        let logs = &self.logs;
        // Some may belong to programs that no longer exist.
        let _ = fs::remove_dir_all(logs);
        fs::create_dir_all(logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        let (jobs, ran) = (Mutex::new(jobs), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let job = lock(&jobs).pop_front();
                        let Some(job) = job else { break };
                        let outcome = self.run(&job);
                        lock(&ran).push(outcome);
                    }
                });
            }
        });
        Ok(ran.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a job to its end, and then shows all of its output.
    fn run(&self, job: &Job) -> Ran {
        let name = job.to_string();
        let log = self.logs.join(format!("{}.log", name.replace('/', "-")));
        let shown = log.strip_prefix(self.root).unwrap_or(&log).display();
        (self.show)(format!("units: {name} begins: {shown}\n").as_bytes());
        let began = Instant::now();
        let outcome = run_logged(self.command(job), &log);
        let took = began.elapsed();
        let failure = match outcome {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        };
        let mut said = fs::read(&log).unwrap_or_default();
        let skips = skips_in(&String::from_utf8_lossy(&said));
        let verdict = failure.as_deref().unwrap_or("passed");
        let end = format!("units: {name}: {verdict}, {} s\n\n", took.as_secs());
        said.extend(end.as_bytes());
        (self.show)(&said);
        Ran {
            name,
            took,
            failure,
            skips,
        }
    }

    fn command(&self, job: &Job) -> Command {
        let mut command = match job {
            Job::DocTests => {
                let mut cargo = cargo(self.root);
                cargo.args(["test", "--workspace", "--locked", "--doc", "--"]);
                cargo
            }
            Job::Program(program) => self.program(program),
        };
        command.args(self.args);
        command
    }

    /// Prepares a program: its folder and environment (UNITS-1), its namespace (UNITS-3) and its end (UNITS-4).
    fn program(&self, program: &Program) -> Command {
        let mut command = prefixed(&self.prefix, &program.executable);
        command.current_dir(&program.folder);
        // Cargo has set the variables of this package. Test programs have their own from build time.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        if self.without_root {
            command.env_remove("UBTRFS_REQUIRE_KERNEL");
            command.env("HOME", env::temp_dir());
        }
        command
    }
}

fn prefixed(prefix: &[&str], program: &Path) -> Command {
    let Some((first, rest)) = prefix.split_first() else {
        return Command::new(program);
    };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Runs `true` with these words before it. Errors: the reason of the failure.
fn attempt(prefix: &[&str]) -> Result<(), String> {
    let mut command = prefixed(prefix, Path::new("true"));
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn run_logged(mut command: Command, log: &Path) -> io::Result<ExitStatus> {
    let log = File::create(log)?;
    command.stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log).status()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the reasons for skips in the output of a program, as `ubtrfs_sim::skip` writes them (UNITS-5).
fn skips_in(said: &str) -> BTreeMap<String, usize> {
    let mut skips = BTreeMap::new();
    for line in said.lines() {
        // With one thread, the harness begins the line with the name of the test.
        let skip = line.split_once("SKIPPED ").map(|(_, skip)| skip);
        if let Some((_, reason)) = skip.and_then(|skip| skip.split_once(": ")) {
            *skips.entry(reason.to_owned()).or_default() += 1;
        }
    }
    skips
}

/// Formats the longest times, all skips, and all failed jobs.
fn summary(ran: &mut [Ran], took: Duration) -> String {
    ran.sort_by_key(|ran| Reverse(ran.took));
    let mut lines = vec!["units: the longest:".to_owned()];
    let longest = ran.iter().take(SHOWN);
    lines.extend(longest.map(|ran| format!("{:>6} s  {}", ran.took.as_secs(), ran.name)));
    let failed: Vec<String> = ran
        .iter()
        .filter_map(|ran| Some(format!("  {}: {}", ran.name, ran.failure.as_ref()?)))
        .collect();
    let count: usize = ran.iter().flat_map(|ran| ran.skips.values()).sum();
    lines.push(format!(
        "units: {count} skipped{}",
        if count == 0 { "" } else { ":" }
    ));
    for ran in ran.iter() {
        let skips = ran.skips.iter();
        lines.extend(skips.map(|(reason, count)| format!("{count:>6}    {}: {reason}", ran.name)));
    }
    let (all, seconds) = (ran.len(), took.as_secs());
    lines.push(match failed.len() {
        0 => format!("units: all {all} passed, {seconds} s"),
        count => format!("units: {count} of {all} failed, {seconds} s:"),
    });
    lines.extend(failed);
    lines.join("\n") + "\n"
}
