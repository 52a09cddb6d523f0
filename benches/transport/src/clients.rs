//! Processes that work in a directory, phase by phase, all at once.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

pub(crate) const OPERATIONS: [&str; 5] = [
    "create+close",
    "stat",
    "rename",
    "open+write 4K+close",
    "unlink",
];

/// Microseconds that an operation took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    /// Of a hundred operations one takes longer.
    pub(crate) p99: f64,
    pub(crate) longest: f64,
}

/// Of each operation, the means over all clients, but the longest of all.
pub(crate) struct Figures(pub(crate) [Times; OPERATIONS.len()]);

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

struct Client {
    child: Child,
    tell: ChildStdin,
    heard: BufReader<ChildStdout>,
}

/// Has so many clients work below `dir` at once, on the first CPU only if they are pinned.
pub(crate) fn measure(dir: &Path, clients: usize, files: u32, pinned: bool) -> Result<Figures> {
    let places: Vec<PathBuf> = (0..clients)
        .map(|number| dir.join(format!("client-{number}")))
        .collect();
    let mut running = places
        .iter()
        .map(|place| {
            fs::create_dir(place)?;
            start(place, files, pinned)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut figures = [Times::default(); OPERATIONS.len()];
    for figure in &mut figures {
        for client in &mut running {
            client.tell.write_all(b"\n")?;
        }
        for client in &mut running {
            let mut line = String::new();
            client.heard.read_line(&mut line)?;
            figure.add(Times::from_line(&line)?, 1.0 / clients as f64);
        }
    }
    for mut client in running {
        drop(client.tell);
        if !client.child.wait()?.success() {
            bail!("a client failed");
        }
    }
    for place in places {
        fs::remove_dir(place)?;
    }
    Ok(Figures(figures))
}

fn start(place: &Path, files: u32, pinned: bool) -> Result<Client> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(pinned.then_some("--pinned"))
        .arg("--client")
        .arg(place)
        .arg("--files")
        .arg(files.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let tell = child.stdin.take().context("a client's input")?;
    let heard = BufReader::new(child.stdout.take().context("a client's output")?);
    Ok(Client { child, tell, heard })
}

/// A client's life: a phase for each line that it is sent.
pub(crate) fn work(dir: &Path, files: u32) -> Result<()> {
    let name = |number: u32| dir.join(format!("file-{number}"));
    let renamed = |number: u32| dir.join(format!("renamed-{number}"));
    let page = vec![7; 4096];
    let phases: [&dyn Fn(u32) -> Result<()>; OPERATIONS.len()] = [
        &|number| Ok(File::create_new(name(number)).map(drop)?),
        &|number| Ok(fs::metadata(name(number)).map(drop)?),
        &|number| Ok(fs::rename(name(number), renamed(number))?),
        &|number| {
            let file = OpenOptions::new().write(true).open(renamed(number))?;
            Ok(file.write_all_at(&page, 0)?)
        },
        &|number| Ok(fs::remove_file(renamed(number))?),
    ];
    let mut lines = std::io::stdin().lines();
    for phase in phases {
        if lines.next().transpose()?.is_none() {
            break;
        }
        let mut micros = Vec::with_capacity(files as usize);
        for number in 0..files {
            let begun = Instant::now();
            phase(number)?;
            micros.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        println!("{}", Times::of(micros).to_line());
    }
    Ok(())
}
