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

/// Microseconds of each operation, the mean over all clients.
pub(crate) struct Figures(pub(crate) [f64; OPERATIONS.len()]);

struct Client {
    child: Child,
    tell: ChildStdin,
    heard: BufReader<ChildStdout>,
}

/// Has so many clients work below `dir` at once.
pub(crate) fn measure(dir: &Path, clients: usize, files: u32) -> Result<Figures> {
    let places: Vec<PathBuf> = (0..clients)
        .map(|number| dir.join(format!("client-{number}")))
        .collect();
    let mut running = places
        .iter()
        .map(|place| {
            fs::create_dir(place)?;
            start(place, files)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut figures = [0.0; OPERATIONS.len()];
    for figure in &mut figures {
        for client in &mut running {
            client.tell.write_all(b"\n")?;
        }
        for client in &mut running {
            let mut line = String::new();
            client.heard.read_line(&mut line)?;
            let micros: f64 = line.trim().parse().context("a client's figure")?;
            *figure += micros / clients as f64;
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

fn start(place: &Path, files: u32) -> Result<Client> {
    let mut child = Command::new(std::env::current_exe()?)
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
        let begun = Instant::now();
        for number in 0..files {
            phase(number)?;
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / f64::from(files);
        println!("{micros}");
    }
    Ok(())
}
