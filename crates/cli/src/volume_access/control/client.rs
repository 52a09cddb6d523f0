//! The client side: recognizes commands for a mount, and has its server run them.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::process::geteuid;
use ubtrfs_device::random_uuid;
use ubtrfs_fs::Error;
use ubtrfs_fuse::caller::Peer;
use ubtrfs_fuse::mount::Nonce;

use super::mounted::{Found, Kind, Mounted};
use super::protocol::{self, Address, ProtocolError, Request, VERSION};
use super::relay::relayed;
use super::{BY_IOCTLS, GROUPS, RECEIVE, SEND};
use crate::presentation::clock;
use crate::presentation::quoting::Escaped;
use crate::volume_access::location::Location;
use crate::volume_access::new_device::DeviceArgument;
use crate::volume_access::session::MountPath;
use crate::volume_access::{stream_input, stream_output};

/// Commands that read or freeze file data, some of which may only be in the kernel's cache.
const LOOKING_AT_DATA: [&str; 4] = ["du", "find-new", "snapshot", "sync"];
/// Commands whose argument need not exist.
const MAKING: [&str; 2] = ["create", "snapshot"];
/// Commands that continue with other arguments if one does not exist.
const GOING_ON: [&str; 2] = ["delete", "du"];

/// The way in which a command is run.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is not for a mount.
    Here,
    /// The server of a mount has run it, with this exit code.
    Ran(u8),
    /// It is for a mount, but no server runs it.
    Refused(anyhow::Error),
}

/// Runs a command on paths in a mount in the server of that mount.
pub(crate) fn run_elsewhere(
    command: &clap::Command,
    matches: &ArgMatches,
    args: &[OsString],
) -> anyhow::Result<Outcome> {
    let line = Line::of(command, matches);
    let mut mounted: Vec<(&OsStr, Mounted)> = Vec::new();
    let mut kernels: Vec<&OsStr> = Vec::new();
    let mut others: Vec<&OsStr> = Vec::new();
    for &argument in &line.locations {
        match Found::of(argument) {
            Ok(Found::Ours(path)) => mounted.push((argument, path)),
            Ok(Found::Kernels(kind)) if line.means(kind) => kernels.push(argument),
            Ok(Found::Kernels(_) | Found::Elsewhere) => others.push(argument),
            // Opening it will return the reason.
            Err(error) => {
                let shown = Escaped::of(argument);
                tracing::debug!(%shown, %error, "cannot find its mount");
            }
        }
    }
    let elsewhere = others.into_iter().filter(|other| Path::new(other).exists());
    let Some((first, mount)) = mounted.first() else {
        let Some(first) = kernels.first() else {
            return Ok(Outcome::Here);
        };
        must_be_none_besides(first, elsewhere)?;
        return Ok(Outcome::Refused(anyhow!(
            "'{}' is in a mount of the kernel's btrfs: this command works on images and on mounts of ubtrfs",
            Escaped::of(first)
        )));
    };
    let group = line.names.first().copied().unwrap_or_default();
    if group == BY_IOCTLS {
        must_be_none_besides(first, kernels.into_iter().chain(elsewhere))?;
        return Ok(Outcome::Refused(anyhow!(
            "'{}' is in a mount whose server does not know this command",
            Escaped::of(first)
        )));
    }
    if !GROUPS.contains(&group) {
        bail!(
            "'{}' is in a mount: '{group}' works on images: use the system's own commands there",
            Escaped::of(first)
        );
    }
    if !line.is(&MAKING) && !line.is(&GOING_ON) {
        for (argument, _) in &mounted {
            must_be_there(argument)?;
        }
    }
    let is_here = |path: &Mounted| path.device == mount.device;
    let others_of_ours = mounted.iter().filter(|(_, path)| !is_here(path));
    let others_of_ours = others_of_ours.map(|(argument, _)| *argument);
    must_be_none_besides(first, others_of_ours.chain(kernels).chain(elsewhere))?;
    let is_unwritten = line.is(&LOOKING_AT_DATA) && !write_back(mount, &line)?;
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let request = Request {
        device: mount.device,
        zone: clock::zone_name().into_bytes(),
        is_unwritten,
        mountpoint: bytes(mount.mountpoint.as_os_str()),
        paths: mounted
            .iter()
            .map(|(argument, path)| MountPath {
                written: bytes(argument),
                path: path.path.clone(),
                is_read_only: path.is_read_only,
            })
            .collect(),
        args: args.iter().map(|arg| bytes(&line.resolved(arg))).collect(),
    };
    if group == SEND {
        redirect_output(matches)?;
    }
    let input = match group {
        RECEIVE => Some(input_of(matches)?),
        _ => None,
    };
    match have_it_run(mount, &request, input.as_ref()) {
        Ok(code) => Ok(Outcome::Ran(code)),
        Err(Failed::NotBegun(error)) => Ok(Outcome::Refused(error)),
        // Repeating this command is harmless.
        Err(Failed::Unfinished(error)) if line.names == ["filesystem", "sync"] => {
            Ok(Outcome::Refused(error))
        }
        Err(Failed::Unfinished(error)) => Err(error),
    }
}

/// Opens the output file of a command, as only the client may be able to write it.
fn redirect_output(matches: &ArgMatches) -> anyhow::Result<()> {
    let file = matches.subcommand().map(|(_, send)| send.get_one("file"));
    match file.flatten() {
        Some(path) => stream_output::redirect(PathBuf::as_path(path)),
        None => Ok(()),
    }
}

/// Opens the input of a command, as only the client may be able to see it.
fn input_of(matches: &ArgMatches) -> anyhow::Result<File> {
    let matches = matches.subcommand().map(|(_, matches)| matches);
    let path = matches.and_then(|matches| matches.get_one::<PathBuf>("file"));
    stream_input::open(path.map(PathBuf::as_path))
}

/// Refuses a path that does not exist. If it cannot be examined, the server reports the error.
fn must_be_there(argument: &OsStr) -> anyhow::Result<()> {
    match Path::new(argument).symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "cannot access '{}': {}",
            Escaped::of(argument),
            Error::NotFound
        ),
        _ => Ok(()),
    }
}

fn must_be_none_besides<'a>(
    first: &OsStr,
    mut others: impl Iterator<Item = &'a OsStr>,
) -> anyhow::Result<()> {
    match others.next() {
        None => Ok(()),
        Some(other) => bail!(
            "'{}' and '{}' are not in the same volume",
            Escaped::of(first),
            Escaped::of(other)
        ),
    }
}

/// The parts of a command line that determine where it runs.
#[derive(Debug, Default)]
struct Line<'a> {
    /// The names of the group and of the command.
    names: Vec<&'a str>,
    /// Arguments that name a volume, or a path in one.
    locations: Vec<&'a OsStr>,
    /// Arguments that name a device.
    devices: Vec<&'a OsStr>,
}

impl<'a> Line<'a> {
    fn of(command: &'a clap::Command, matches: &'a ArgMatches) -> Line<'a> {
        let mut line = Line::default();
        let mut at = Some((command, matches));
        while let Some((command, matches)) = at {
            for arg in command.get_arguments() {
                let kind = arg.get_value_parser().type_id();
                let written = || matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
                if kind == TypeId::of::<Location>() {
                    line.locations.extend(written());
                } else if kind == TypeId::of::<DeviceArgument>() {
                    line.devices.extend(written());
                }
            }
            at = matches.subcommand().and_then(|(name, matches)| {
                line.names.push(name);
                Some((command.find_subcommand(name)?, matches))
            });
        }
        line
    }

    /// Returns an argument for the server, whose working directory is another one.
    fn resolved(&self, argument: &OsStr) -> OsString {
        if self.devices.contains(&argument) {
            DeviceArgument::resolve(argument).into()
        } else {
            argument.to_owned()
        }
    }

    /// Returns whether a path in a mount of the kernel's btrfs is meant itself, and not as an image that
    /// exists or might exist.
    fn means(&self, kind: Kind) -> bool {
        match kind {
            Kind::Directory => true,
            Kind::File => {
                self.is(&MAKING)
                    || self.names.first() == Some(&"property")
                    || self.names == ["filesystem", "du"]
                    || self.names == ["inspect-internal", "rootid"]
            }
            Kind::Nothing => self.is(&MAKING),
        }
    }

    fn is(&self, commands: &[&str]) -> bool {
        let name = self.names.last();
        name.is_some_and(|name| commands.contains(name))
    }
}

/// Writes back the kernel's pages of the mount. Returns false if the server must do it, because the directory of the
/// mount cannot be opened or is below another mount.
///
/// Errors: the directory cannot be opened. `filesystem sync` also reports that data of some file could not be stored.
fn write_back(mount: &Mounted, line: &Line<'_>) -> anyhow::Result<bool> {
    let shown = mount.mountpoint.display();
    let dir = match File::open(&mount.mountpoint) {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot open '{shown}'")),
    };
    let device = dir.metadata().map(|found| found.dev());
    if !device.is_ok_and(|device| (major(device), minor(device)) == mount.device) {
        return Ok(false);
    }
    // A mount of FUSE fails syncfs(2) only because data of some file could not be stored, and reports each such loss to
    // one caller. fsync(2) of the file reports it as well, so that other commands continue.
    if let Err(error) = rustix::fs::syncfs(&dir)
        && line.names == ["filesystem", "sync"]
    {
        return Err(error).with_context(|| format!("cannot write back the data of '{shown}'"));
    }
    Ok(true)
}

/// The reason why the server of a mount did not complete a command.
enum Failed {
    /// Nothing was done.
    NotBegun(anyhow::Error),
    Unfinished(anyhow::Error),
}

fn have_it_run(mount: &Mounted, request: &Request, input: Option<&File>) -> Result<u8, Failed> {
    let shown = mount.mountpoint.display();
    let caller = geteuid();
    if !caller.is_root() && caller.as_raw() != mount.owner {
        return Err(Failed::NotBegun(anyhow!(
            "'{shown}' was mounted by user {}: only that user and root may run commands on it",
            mount.owner
        )));
    }
    let unreachable = || format!("cannot reach the process that serves the mount at '{shown}'");
    let reached = reach(mount).and_then(|socket| Ok((Peer::of(&socket)?.uid, socket)));
    let (server, socket) = reached
        .with_context(unreachable)
        .map_err(Failed::NotBegun)?;
    let is_trusted = server == 0 || server == caller.as_raw();
    let mut unfinished = None;
    let answer = if is_trusted {
        ask(
            &socket,
            request,
            (io::stdout(), io::stderr()),
            input,
            &mut unfinished,
        )
    } else {
        relayed(input, |stdout, stderr, input| {
            ask(&socket, request, (stdout, stderr), input, &mut unfinished)
        })
        .map_err(|error| Failed::NotBegun(error.into()))?
    };
    let left = unfinished.map_or(String::new(), |name| {
        format!(
            "; subvolume '{}' is not finished, and writable",
            Escaped(&name)
        )
    });
    answer.map_err(|error| match error {
        ProtocolError::Malformed => Failed::Unfinished(anyhow!(
            "the process that serves the mount at '{shown}' did not finish the command{left}"
        )),
        ProtocolError::Version(version) => Failed::NotBegun(anyhow!(
            "the mount at '{shown}' is served by version {version} of this program, and this is version {VERSION}: \
             use that one, or unmount it and mount it again"
        )),
        ProtocolError::Io(error) => {
            Failed::Unfinished(anyhow::Error::from(error).context(unreachable() + &left))
        }
    })
}

/// Sends a command to a server, which writes its output, and waits for the exit code.
fn ask(
    socket: &UnixStream,
    request: &Request,
    (stdout, stderr): (impl AsFd, impl AsFd),
    input: Option<&File>,
    unfinished: &mut Option<Vec<u8>>,
) -> Result<u8, ProtocolError> {
    // A refusing server may have sent its reason and closed the connection before the request was complete.
    let sent = request.send(socket, stdout, stderr, input);
    match protocol::exit_code(socket, unfinished) {
        Err(ProtocolError::Malformed) => sent.and(Err(ProtocolError::Malformed)),
        answer => answer,
    }
}

/// Connects to the process that serves the mount.
pub(super) fn reach(mount: &Mounted) -> anyhow::Result<UnixStream> {
    let address = Address::at(&mount.place)?;
    let mut reasons = Vec::new();
    for socket in address.sockets() {
        match socket
            .map_err(Into::into)
            .and_then(|socket| connect(mount, &socket))
        {
            Ok(connection) => return Ok(connection),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    if address.path.is_none() {
        reasons.push("no other network namespace than its own is served".into());
    }
    bail!("{}", reasons.join("; "))
}

fn connect(mount: &Mounted, socket: &SocketAddr) -> anyhow::Result<UnixStream> {
    let connection = UnixStream::connect_addr(socket)?;
    let uid = Peer::of(&connection)?.uid;
    // In the numbers of our user namespace, where the user who mounted may be root.
    if uid != 0 && uid != mount.owner {
        bail!("a process of user {uid} answers instead");
    }
    let nonce = Nonce(random_uuid().0);
    if !protocol::greet(&connection, nonce)? {
        bail!("it refuses commands");
    }
    // The process of an allowed user is not necessarily the server of the mount.
    match rustix::fs::getxattr(&mount.place, nonce.attribute(), &mut [0u8; 1]) {
        Ok(_) => Ok(connection),
        Err(Errno::NODATA) => bail!("another process answers instead"),
        Err(error) => Err(error.into()),
    }
}
