//! The server side in a mount: runs commands for clients, several at a time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ArgMatches;
use rustix::process::geteuid;
use ubtrfs_device::thread;
use ubtrfs_fs::Volume;
use ubtrfs_fuse::caller::{Caller, Peer, administer_mount, caller_of, is_our_user};
use ubtrfs_fuse::mount::{ControlPoint, MountError, MountService, Teardown, is_read_only_to};

use super::GROUPS;
use super::protocol::{
    self, Address, DURABLE, Descriptors, NOT_DURABLE, ProtocolError, Request, UNMOUNTED,
};
use super::socket_file::SocketFile;
use crate::presentation::clock;
use crate::presentation::console::{Client, RefusalHint};
use crate::presentation::error_chain::ErrorChain;
use crate::program::{ClientOutput, Program};
use crate::volume_access::location::LocationParser;
use crate::volume_access::reason::is_refusal;
use crate::volume_access::session::{MountSession, ServedMount, Session};

/// Further clients wait until one has ended.
const MAX_CLIENTS: usize = 64;
/// The time for an accepted client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait before the next accept after a failed one.
const SHORTAGE_TAKES: Duration = Duration::from_millis(100);
/// How long the end of the mount waits for commands that do not notice it.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection usually disappears within this time after its last unmount, even if a process has just used
/// it.
const LINGERS_AT_MOST: Duration = Duration::from_secs(1);

/// The mount on which commands run.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) volume: Arc<Volume>,
    pub(crate) mount: ServedMount,
    /// The address for commands that the mount publishes.
    pub(crate) point: ControlPoint,
    /// None if clients cannot wait for the end of the server.
    pub(crate) teardown: Option<Teardown>,
    pub(crate) unmount_clients: UnmountClients,
    /// Whether all users of the mount may do everything in it.
    pub(crate) is_fakeroot: bool,
    /// The program that runs the commands.
    pub(crate) program: Program,
}

/// Clients that wait for the end of the server. Their connections stay open until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnmountClients(Arc<Mutex<Vec<Arc<UnixStream>>>>);

impl UnmountClients {
    fn add(&self, connection: &Arc<UnixStream>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(connection));
    }

    fn remove(&self, connection: &Arc<UnixStream>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// Reports that the last commit failed.
    pub(crate) fn report_failure(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut connection in all.iter().map(|connection| &**connection) {
            // Ignore clients that are gone.
            let _ = connection.write_all(&[NOT_DURABLE]);
        }
    }
}

/// The sockets of a mount, and the clients served there.
#[derive(Debug)]
pub(crate) struct Control {
    clients: Arc<Clients>,
    sockets: Vec<Socket>,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
struct Socket {
    listener: Arc<UnixListener>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Starts listening, and publishes the address in the mount.
    pub(crate) fn start(served: Served) -> io::Result<Control> {
        let with_file = SocketFile::listen();
        if let Err(error) = &with_file {
            tracing::debug!(%error, "no socket for commands from other network namespaces");
        }
        Control::start_with(served, Address::new(), with_file.ok())
    }

    fn start_with(
        served: Served,
        mut address: Address,
        with_file: Option<(UnixListener, SocketFile)>,
    ) -> io::Result<Control> {
        let named = UnixListener::bind_addr(&address.abstract_socket()?)?;
        let (at_path, file) = with_file.unzip();
        address.path = file.as_ref().map(|file| file.path().to_owned());
        served.point.hand_out(&address.to_bytes());
        let mut control = Control {
            clients: Arc::default(),
            sockets: Vec::new(),
            _file: file,
        };
        for listener in [Some(named), at_path].into_iter().flatten() {
            control.accept_at(listener, served.clone())?;
        }
        Ok(control)
    }

    fn accept_at(&mut self, listener: UnixListener, served: Served) -> io::Result<()> {
        let listener = Arc::new(listener);
        let accepting = (Arc::clone(&listener), Arc::clone(&self.clients));
        let thread = thread::start("ubtrfs-control", move || {
            accept(&served, &accepting.0, &accepting.1)
        })?;
        self.sockets.push(Socket { listener, thread });
        Ok(())
    }
}

impl MountService for Control {
    fn end(&mut self) -> Result<(), MountError> {
        for socket in &self.sockets {
            // This makes the accept fail.
            let _ = rustix::net::shutdown(&*socket.listener, rustix::net::Shutdown::Both);
        }
        self.clients.end();
        let mut outcome = Ok(());
        for socket in self.sockets.drain(..) {
            if socket.thread.join().is_err() {
                outcome = Err(MountError::Panicked);
            }
        }
        outcome
    }
}

/// Connections of running commands.
#[derive(Debug, Default)]
struct Clients {
    state: Mutex<ClientsState>,
    one_ended: Condvar,
}

#[derive(Debug, Default)]
struct ClientsState {
    running: HashMap<u64, Arc<UnixStream>>,
    next: u64,
    is_ending: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, ClientsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room. Returns None if the mount ends.
    fn enter(self: &Arc<Self>, connection: &Arc<UnixStream>) -> Option<Running> {
        let state = self.lock();
        let is_full =
            |state: &mut ClientsState| state.running.len() >= MAX_CLIENTS && !state.is_ending;
        let waited = self.one_ended.wait_while(state, is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_ending {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.running.insert(id, Arc::clone(connection));
        Some(Running {
            clients: Arc::clone(self),
            id,
        })
    }

    /// Waits until a client or the mount ends, but only for a short time: another process may have released
    /// descriptors.
    fn wait_for_end_of_one(&self) {
        let state = self.lock();
        if !state.is_ending {
            drop(self.one_ended.wait_timeout(state, SHORTAGE_TAKES));
        }
    }

    /// Ends all commands at their next output, and waits for them.
    fn end(&self) {
        let mut state = self.lock();
        state.is_ending = true;
        for connection in state.running.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.one_ended.notify_all();
        let still = |state: &mut ClientsState| !state.running.is_empty();
        let waited = self.one_ended.wait_timeout_while(state, END_TIMEOUT, still);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.running.is_empty() {
            let left = state.running.len();
            tracing::warn!(left, "commands are still running at the end of the mount");
        }
    }
}

/// A slot among the clients.
struct Running {
    clients: Arc<Clients>,
    id: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.clients.lock().running.remove(&self.id);
        self.clients.one_ended.notify_all();
    }
}

fn accept(served: &Served, listener: &UnixListener, clients: &Arc<Clients>) {
    loop {
        let connection = match listener.accept() {
            Ok((connection, _)) => Arc::new(connection),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a command");
                if clients.lock().is_ending {
                    return;
                }
                // Most likely out of descriptors.
                clients.wait_for_end_of_one();
                continue;
            }
        };
        let Some(running) = clients.enter(&connection) else {
            return;
        };
        let served = served.clone();
        let started = thread::start("ubtrfs-command", move || {
            serve(served, &connection, running);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot run a command");
        }
    }
}

/// Runs one command. A client without an answer knows that its command was not completed.
fn serve(served: Served, connection: &Arc<UnixStream>, running: Running) {
    let Peer { uid, gid, pid } = match Peer::of(connection) {
        Ok(peer) => peer,
        Err(error) => return tracing::warn!(%error, "cannot get the credentials of a client"),
    };
    if uid != 0 && uid != geteuid().as_raw() {
        // Only a debug message: any user may connect, arbitrarily often.
        return tracing::debug!(uid, "refused a command of another user");
    }
    let caller = caller_of(pid, uid, gid);
    let caller = if served.is_fakeroot {
        caller.as_superuser()
    } else {
        caller
    };
    // Limits the time that a deliberately slow client occupies a thread.
    let _ = connection.set_read_timeout(Some(REQUEST_TIMEOUT));
    let received = protocol::greeting(connection).and_then(|nonce| {
        let _known = served.point.know(nonce);
        protocol::say_ready(connection)?;
        Request::receive(connection)
    });
    let (request, descriptors) = match received {
        Ok(request) => request,
        Err(error @ ProtocolError::Version(_)) => {
            let _ = protocol::refuse_version(connection);
            return tracing::warn!(%error, "refused a command of another version");
        }
        Err(error) => return tracing::debug!(%error, "no request"),
    };
    let Descriptors {
        stdout,
        mut stderr,
        input,
    } = descriptors;
    if request.device != served.mount.device {
        return tracing::warn!(uid, "refused a command for another mount");
    }
    tracing::debug!(uid, pid, args = ?request.args, "command");
    if request.is_unmount() {
        let (teardown, unmount_clients) = (served.teardown.clone(), served.unmount_clients.clone());
        // The volume is closed regardless of this connection, which outlives the mount.
        drop((served, running, stdout, stderr, input));
        return teardown.map_or((), |teardown| {
            serve_unmount(&teardown, &unmount_clients, connection)
        });
    }
    let client = stderr.try_clone().map(|stderr| Client {
        stderr,
        input,
        connection: Arc::clone(connection),
    });
    let outcome = match client {
        Ok(client) => run(&served, (caller, pid), request, stdout, client),
        Err(error) => Err(error.into()),
    };
    let code = outcome.unwrap_or_else(|error| {
        // If this fails, there is no other place for the message.
        let _ = writeln!(stderr, "ERROR: {}", ErrorChain(&error));
        1
    });
    let _ = (&**connection).write_all(&[code]);
}

/// Reports the commit to a client that unmounts, if the file system lives on. Otherwise the connection ends
/// with this process, which the client notices.
fn serve_unmount(
    teardown: &Teardown,
    unmount_clients: &UnmountClients,
    connection: &Arc<UnixStream>,
) {
    // Added first, because the end of the mount may end the process before this thread runs again.
    unmount_clients.add(connection);
    let mut said = [0];
    let notified = connection
        .set_read_timeout(None)
        .and_then(|()| protocol::say_ready(connection))
        .and_then(|()| (&**connection).read_exact(&mut said));
    if notified.is_err() || said != [UNMOUNTED] {
        return unmount_clients.remove(connection);
    }
    if teardown.ends_within(LINGERS_AT_MOST) {
        return;
    }
    let answer = if teardown.make_durable() {
        DURABLE
    } else {
        NOT_DURABLE
    };
    if !teardown.ends_within(Duration::ZERO) {
        unmount_clients.remove(connection);
        let _ = (&**connection).write_all(&[answer]);
    }
}

fn run(
    served: &Served,
    (caller, pid): (Caller, u32),
    request: Request,
    stdout: File,
    client: Client,
) -> anyhow::Result<u8> {
    clock::use_zone(&String::from_utf8_lossy(&request.zone));
    // The client may be any program and lie about its mounts.
    let sees_only_read_only = is_read_only_to(pid, served.mount.device);
    let is_own_user = is_our_user(&caller);
    let mount = MountSession {
        caller,
        served: served.mount.clone(),
        paths: request.paths,
        sees_only_read_only,
    };
    if request.is_unwritten {
        mount.write_back(None)?;
    }
    let session = Arc::new(Session::of_mount(
        PathBuf::from(OsString::from_vec(request.mountpoint)),
        &served.volume,
        mount,
    )?);
    let args = request.args.into_iter().map(OsString::from_vec);
    let matches = LocationParser::within(&session)
        .put_into((served.program.definition)())
        .try_get_matches_from(args)?;
    if !matches
        .subcommand_name()
        .is_some_and(|group| GROUPS.contains(&group))
    {
        bail!("this command does not work on a mount");
    }
    check_allowed(&session, &matches)?;
    let output = ClientOutput {
        stdout,
        client,
        if_refused: (is_own_user && !served.is_fakeroot).then_some(FAKEROOT_WOULD),
    };
    (served.program.run_for)(&matches, output)
}

/// Commands for administrators, by group. They change how a mount is served, read the volume as it is on
/// disk, or return data for which the kernel's btrfs searches trees.
const OF_ADMINISTRATORS: [(&str, &[&str]); 6] = [
    ("device", &["stats"]),
    ("filesystem", &["remount"]),
    (
        "inspect-internal",
        &[
            "dump-super",
            "dump-tree",
            "inode-resolve",
            "list-chunks",
            "logical-resolve",
            "min-dev-size",
            "subvolid-resolve",
            "tree-stats",
        ],
    ),
    // Commands without a group.
    ("receive", &[""]),
    ("send", &[""]),
    (
        "subvolume",
        &["diff", "find-new", "get-default", "list", "show", "sync"],
    ),
];

/// The hint for the user who mounted, added to a refusal.
const FAKEROOT_WOULD: RefusalHint = RefusalHint {
    text: "the mount option fakeroot lets the user who mounts do everything there, \
         user_subvol_rm_allowed lets users delete subvolumes that are theirs",
    is_refusal,
};

/// Checks that the caller may use the command at all, regardless of paths.
fn check_allowed(session: &Session, matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((group, command)) = matches.subcommand() else {
        return Ok(());
    };
    let name = command.subcommand_name().unwrap_or_default();
    let is_guarded = OF_ADMINISTRATORS
        .iter()
        .any(|(of, names)| *of == group && names.contains(&name));
    match session.rights() {
        Some(rights) if is_guarded => administer_mount(rights)
            .with_context(|| format!("cannot run '{}'", [group, name].join(" ").trim_end())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
