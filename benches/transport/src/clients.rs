//! Concurrent processes that work in a directory, phase by phase.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::phases::Phase;

/// Microseconds per operation.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    /// The 99th percentile.
    pub(crate) p99: f64,
    pub(crate) longest: f64,
}

impl Times {
    fn of(mut micros: Vec<f64>) -> Self {
        micros.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (micros.len() as f64 * part) as usize;
            micros.get(index).copied().unwrap_or_default()
        };
        Self {
            mean: micros.iter().sum::<f64>() / micros.len().max(1) as f64,
            median: at(0.5),
            p99: at(0.99),
            longest: micros.last().copied().unwrap_or_default(),
        }
    }

    fn to_line(self) -> String {
        format!(
            "{} {} {} {}",
            self.mean, self.median, self.p99, self.longest
        )
    }

    fn from_line(line: &str) -> Result<Self> {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.context("a client's figures")?[..] {
            [mean, median, p99, longest] => Ok(Self {
                mean,
                median,
                p99,
                longest,
            }),
            _ => bail!("a client's figures: {line:?}"),
        }
    }

    fn add(&mut self, other: Self, share: f64) {
        self.mean += other.mean * share;
        self.median += other.median * share;
        self.p99 += other.p99 * share;
        self.longest = self.longest.max(other.longest);
    }
}

/// The work of clients.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) phases: Vec<Phase>,
    /// Files of each client.
    pub(crate) files: u32,
    /// Only on the first CPU.
    pub(crate) pinned: bool,
    /// All clients in one directory.
    pub(crate) shared: bool,
}

struct Client {
    child: Child,
    begin: ChildStdin,
    heard: BufReader<ChildStdout>,
    place: PathBuf,
}

/// Concurrent clients, each in its own directory or all in one.
pub(crate) struct Crew(Vec<Client>);

impl Crew {
    pub(crate) fn start(dir: &Path, clients: usize, work: &Work) -> Result<Self> {
        let client = |number| {
            let own = format!("client-{number}");
            let (place, prefix) = if work.shared {
                (dir.join("clients"), own)
            } else {
                (dir.join(own), String::new())
            };
            if !place.exists() {
                fs::create_dir(&place)?;
            }
            start(place, &prefix, work)
        };
        (0..clients).map(client).collect::<Result<_>>().map(Self)
    }

    /// Runs the next phase on all clients. Returns means over all clients, except for the longest operation of all.
    pub(crate) fn phase(&mut self) -> Result<Times> {
        for client in &mut self.0 {
            client.begin.write_all(b"\n")?;
        }
        let share = 1.0 / self.0.len() as f64;
        let mut times = Times::default();
        for client in &mut self.0 {
            let mut line = String::new();
            client.heard.read_line(&mut line)?;
            times.add(Times::from_line(&line)?, share);
        }
        Ok(times)
    }

    pub(crate) fn end(self) -> Result<()> {
        let mut places = Vec::new();
        for mut client in self.0 {
            drop(client.begin);
            if !client.child.wait()?.success() {
                bail!("a client failed");
            }
            places.push(client.place);
        }
        places.dedup();
        for place in places {
            fs::remove_dir(place)?;
        }
        Ok(())
    }
}

/// Runs all phases in a directory.
pub(crate) fn measure(dir: &Path, clients: usize, work: &Work) -> Result<Vec<Times>> {
    let mut crew = Crew::start(dir, clients, work)?;
    let times = work.phases.iter().map(|_| crew.phase()).collect();
    crew.end()?;
    times
}

fn start(place: PathBuf, prefix: &str, work: &Work) -> Result<Client> {
    let phases: Vec<_> = work.phases.iter().map(|phase| phase.name()).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .arg("client")
        .args(work.pinned.then_some("--pinned"))
        .arg("--files")
        .arg(work.files.to_string())
        .arg("--phases")
        .arg(phases.join(","))
        .arg("--prefix")
        .arg(prefix)
        .arg(&place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let begin = child.stdin.take().context("a client's input")?;
    let heard = BufReader::new(child.stdout.take().context("a client's output")?);
    Ok(Client {
        child,
        begin,
        heard,
        place,
    })
}

/// Runs a client: a phase for each input line.
pub(crate) fn live(dir: &Path, prefix: &str, work: &Work) -> Result<()> {
    let mut lines = std::io::stdin().lines();
    for phase in &work.phases {
        if lines.next().transpose()?.is_none() {
            break;
        }
        let micros = phase.run(dir, prefix, work.files)?;
        println!("{}", Times::of(micros).to_line());
    }
    Ok(())
}
