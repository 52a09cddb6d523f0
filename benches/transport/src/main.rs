//! What the transport of a mount costs: a server that answers at once, over each transport, beside the
//! kernel's btrfs on a loop device, in one run.
//!
//! Clients are processes, each with a directory of its own. Times are per operation and client. Needs root;
//! allows FUSE over io_uring while it mounts.
//!
//! With `--contended` what is measured is how late answers come while others want the CPUs, with threads of
//! queues that yield and without.

mod clients;
mod contended;
mod instant;
mod places;
mod switch;

use anyhow::Result;
use clap::Parser;
use ubtrfs_fuse::mount::TransportChoice;

use self::clients::{Figures, OPERATIONS, Times};
use self::instant::Manners;

/// Measures the floor of a mount's operations.
#[derive(Debug, Parser)]
struct Arguments {
    /// Files of each client
    #[arg(long, default_value_t = 3000)]
    files: u32,
    /// Numbers of clients at once
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    clients: Vec<usize>,
    /// Readers of /dev/fuse
    #[arg(long, value_delimiter = ',', default_value = "4")]
    threads: Vec<usize>,
    /// Only places whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Without the kernel's page cache for written data
    #[arg(long)]
    write_through: bool,
    /// How late answers come while others want the CPUs
    #[arg(long)]
    contended: bool,
    /// With each client on the first CPU only
    #[arg(long)]
    pinned: bool,
    #[arg(long, hide = true)]
    client: Option<std::path::PathBuf>,
    #[arg(long, hide = true)]
    hog: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.pinned && (arguments.client.is_some() || arguments.hog) {
        contended::pin_to_first_cpu()?;
    }
    if arguments.hog {
        contended::hog();
    }
    if let Some(dir) = &arguments.client {
        return clients::work(dir, arguments.files);
    }
    if arguments.contended {
        return contended::measure(arguments.files, &arguments.clients);
    }
    print!("{:<28}{:>8}", "us per operation", "clients");
    for operation in OPERATIONS {
        print!("{operation:>20}");
    }
    println!();
    let manners = |create| Manners {
        writeback_cache: !arguments.write_through,
        create,
    };
    let wanted = |name: &str| name.contains(&arguments.only);
    for (name, choice, create) in [
        ("io_uring", TransportChoice::Uring, true),
        ("io_uring, mknod", TransportChoice::Uring, false),
    ] {
        if wanted(name) {
            places::with_instant(choice, manners(create), 1, |dir| {
                table(name, dir, &arguments)
            })?;
        }
    }
    for &threads in &arguments.threads {
        for (create, how) in [(true, ""), (false, ", mknod")] {
            let name = format!("/dev/fuse, {threads} threads{how}");
            if wanted(&name) {
                places::with_instant(TransportChoice::Classic, manners(create), threads, |dir| {
                    table(&name, dir, &arguments)
                })?;
            }
        }
    }
    if wanted("kernel btrfs") {
        places::with_kernel_btrfs(|dir| table("kernel btrfs", dir, &arguments))?;
    }
    Ok(())
}

/// Measures one place with each number of clients, and prints a line for each.
fn table(name: &str, dir: &std::path::Path, arguments: &Arguments) -> Result<()> {
    for &count in &arguments.clients {
        let Figures(micros) = clients::measure(dir, count, arguments.files, arguments.pinned)?;
        print!("{name:<28}{count:>8}");
        for Times { mean, .. } in micros {
            print!("{mean:>20.1}");
        }
        println!();
    }
    Ok(())
}
