//! Runs the tested command and the programs that it is compared with.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, available_or_skip};
use ubtrfs_sim::manifest::Manifest;

pub(crate) fn ubtrfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    command.env_remove("UBTRFS_LOG");
    command
}

/// Runs the command and asserts that it succeeded and printed no error or warning.
pub(crate) fn succeed<I, S>(args: I) -> Vec<u8>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let output = ubtrfs().args(args).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    assert_eq!(stderr, "");
    output.stdout
}

/// Returns the exit code of a command that fails. The code of `filesystem label` equals that of btrfs-progs.
pub(crate) fn failure_of<S: AsRef<OsStr>>(args: &[S]) -> i32 {
    let is_label =
        args.len() > 1 && args[0].as_ref() == "filesystem" && args[1].as_ref() == "label";
    if is_label { 255 } else { 1 }
}

/// Runs the command and asserts that it failed with the right exit code, and an error that contains
/// `message`.
pub(crate) fn fail<I, S>(args: I, message: &str) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let args: Vec<S> = args.into_iter().collect();
    let output = ubtrfs().args(&args).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(failure_of(&args)), "{stderr}");
    assert!(
        stderr.lines().any(|line| line.starts_with("ERROR: ")),
        "{stderr}"
    );
    assert!(stderr.contains(message), "{stderr:?} lacks {message:?}");
    output
}

/// Returns another program's standard output and error together, regardless of its exit code.
pub(crate) fn both_outputs(command: &mut Command) -> String {
    let output = command
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .expect("the program starts");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns "IMAGE:/path".
pub(crate) fn location(image: &Path, path: &str) -> std::ffi::OsString {
    let mut location = image.as_os_str().to_owned();
    location.push(":/");
    location.push(path);
    location
}

/// Returns `--device` for all devices but the first.
pub(crate) fn other_devices(devices: &[std::path::PathBuf]) -> Vec<std::ffi::OsString> {
    let others = devices.iter().skip(1);
    others
        .flat_map(|device| ["--device".into(), device.clone().into_os_string()])
        .collect()
}

/// Creates an empty volume of 512 MiB, without the kernel.
pub(crate) fn empty_volume() -> (Scratch, PathBuf) {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    succeed([
        "mkfs".as_ref(),
        "-q".as_ref(),
        "-b".as_ref(),
        "512M".as_ref(),
        image.as_os_str(),
    ]);
    (scratch, image)
}

/// Asserts that the checkers available here find no error in an image.
pub(crate) fn judge(image: &Path) {
    if available_or_skip() {
        judged(image);
    } else {
        succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
    }
}

/// Returns the files of an image as the kernel shows them, after `btrfs check` found no error in it.
pub(crate) fn judged(image: &Path) -> Manifest {
    let scratch = Scratch::new().unwrap();
    let volume = KernelVolume::of_files(vec![image.to_owned()], scratch);
    volume.check().unwrap();
    let mount = volume.mount_ro().unwrap();
    Manifest::of_dir(mount.path()).unwrap()
}

/// A `subvolume sync` that waits for a subvolume of a mount, which is not deleted yet.
pub(crate) struct Waiting {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Waiting {
    pub(crate) fn start(mount: &Path, id: &str) -> Waiting {
        let mut command = ubtrfs();
        command.args(["subvolume", "sync"]).arg(mount).arg(id);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "Waiting for 1 subvolume\n");
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        Waiting { child, said }
    }

    /// Asserts that it ends once the subvolume is gone.
    pub(crate) fn end(mut self, id: &str) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("Subvolume id {id} is gone (1/1)\n"));
        assert!(self.child.wait().unwrap().success());
    }
}
